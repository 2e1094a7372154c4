"""What guides say about other software is so: roles of PostgreSQL, Django on it, files in other languages."""

import json
import os
import re
import secrets
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import typer
import yaml

import pgqrs
from pgqrs.cli import app
from pgqrs.web.application import endpoints
from rig import http

DOCS = Path(__file__).parent.parent / "docs"


def block(page, language, containing):
    found = re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    [text] = [each for each in found if containing in each]
    return text


def as_role(config, role):
    parts = urlsplit(config.dsn)
    where = parts.netloc.rpartition("@")[2]
    return config.with_changes(dsn=urlunsplit(parts._replace(netloc=f"{role}@{where}")))


@pytest.fixture
async def roles(config):
    """What the guide makes, under names that nobody else has."""
    name = f"jobs_{secrets.token_hex(4)}"
    server = await asyncpg.connect(config.dsn, statement_cache_size=0)
    await server.execute(re.sub(r"\bjobs", name, block("guides/deploy.md", "sql", "create role")))
    yield config.with_changes(schema=name)
    for role in ("owner", "worker", "reader"):
        await server.execute(f"drop owned by {name}_{role} cascade")
    for role in ("owner", "worker", "reader"):
        await server.execute(f"drop role {name}_{role}")
    await server.close()


@pytest.mark.backends("postgres")
async def test_the_roles_of_the_deploy_guide_are_enough_and_no_more(roles):
    name = roles.schema
    owner, worker, reader = (as_role(roles, f"{name}_{role}") for role in ("owner", "worker", "reader"))

    async with pgqrs.connect_with(owner, install=True) as store:
        await pgqrs.admin(store).verify()

    async with pgqrs.connect_with(worker) as store:
        await store.create_workflow("report")
        report = pgqrs.workflow("report")
        run_id = await report.trigger("ann", attributes={"customer": "ann"}, idempotency_key="a").execute(store)
        made = await pgqrs.consumer("w", 0, "report").handler(hello).create(store)
        await made.run_until_idle()
        await made.close()
        assert (await report.get_run(run_id, store)).output() == "hello ann"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run_sql(worker, f'drop table "{name}".pgqrs_queues')

    async with pgqrs.connect_with(reader) as store:
        assert [run.run_id for run in await pgqrs.admin(store).runs("status:success")] == [run_id]
        with pytest.raises(Exception, match="permission denied"):
            await pgqrs.workflow("report").trigger("bob").execute(store)


async def hello(ctx, customer: str) -> str:
    return await ctx.step("greet", lambda: f"hello {customer}")


async def run_sql(config, sql):
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


DJANGO = """
import sys, django
from django.conf import settings
host, port, name, user, schema = sys.argv[1:]
settings.configure(INSTALLED_APPS=[], DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": host, "PORT": port, "NAME": name, "USER": user}})
django.setup()
import pgqrs
from django.db import connection, transaction

def durable():
    if not connection.in_atomic_block:
        raise RuntimeError("use this inside transaction.atomic()")
    return pgqrs.using(connection.connection, schema=schema)

with transaction.atomic():
    durable().trigger("fulfil", {"order": 1}, idempotency_key="order-1")
    try:
        with transaction.atomic():
            durable().trigger("fulfil", {"order": 2})
            raise ValueError
    except ValueError:
        pass
try:
    durable()
except RuntimeError:
    pass
"""


@pytest.mark.backends("postgres")
async def test_django_on_postgresql_commits_a_run_with_its_own_transaction(live_store, config, tmp_path):
    """psycopg 3; the guide's own program does the same on SQLite."""
    await live_store.create_workflow("fulfil")
    parts = urlsplit(config.dsn)
    given = [parts.hostname, parts.port or 5432, parts.path[1:], parts.username, config.schema]

    done = subprocess.run(
        [sys.executable, "-c", DJANGO, *map(str, given)],
        cwd=tmp_path, env={**os.environ, "PGPASSWORD": parts.password or ""}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    [run] = await pgqrs.workflow("fulfil").runs(live_store)
    assert run.input == {"order": 1}


@pytest.mark.parametrize(("language", "read"), [("yaml", yaml.safe_load_all), ("toml", tomllib.loads)])
def test_files_in_other_languages_can_be_read(language, read):
    for page in DOCS.rglob("*.md"):
        for text in re.findall(
            rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            assert list(read(text)), page


def test_the_kubernetes_guide_gives_a_worker_longer_than_its_grace():
    deployment, job = yaml.safe_load_all(block("guides/deploy.md", "yaml", "kind: Deployment"))
    pod = deployment["spec"]["template"]["spec"]

    assert pod["terminationGracePeriodSeconds"] >= 20
    assert pod["containers"][0]["args"][:3] == ["pgqrs", "worker", "run"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["pgqrs", "install"]


# -- HTTP ----------------------------------------------------------------------------------------------------

HTTP = "guides/http.md"
NOUNS = ("run", "workflow", "queue", "worker", "schedule", "outbox")


def routes():
    return {f"{each.method} {each.path.removeprefix('/api/v1')}" for each in endpoints(dashboard=False)}


def same_words(noun, verb):
    """The routes that a command has if it is called alike."""
    things = noun if noun == "outbox" else f"{noun}s"
    usual = {"list": "GET /{}", "create": "POST /{}", "get": "GET /{}/{{}}", "delete": "DELETE /{}/{{}}"}
    found = [usual[verb]] if verb in usual else []
    found += [f"{method} /{{}}{part}/{verb}" for method in ("GET", "POST") for part in ("", "/{{}}")]
    return {each.format(things) for each in found}


def test_the_commands_that_have_no_route_of_the_same_words_are_those_of_the_guide():
    known = {re.sub(r"\{\w+\}", "{}", each) for each in routes()}
    tree = typer.main.get_command(app.tree()).commands
    other = {f"{noun} {verb}" for noun in NOUNS for verb in tree[noun].commands if not same_words(noun, verb) & known}
    rows = re.findall(r"^\| (`(?:run|queue|worker|outbox) .*?) \| (.*) \|$", (DOCS / HTTP).read_text(), re.MULTILINE)
    listed = {
        name for command, _ in rows if "with a filter" not in command for name in re.findall("`(.+?)`", command)
    }
    named = {route for _, told in rows for route in re.findall("`((?:GET|POST) .+?)`", told)}

    assert listed == other
    assert named <= routes()
    assert len(rows) == 9


def posted():
    """The requests of the guide that have a body: the path, and that."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (DOCS / HTTP).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if "--json" in line]
    return [re.search(r"127.0.0.1:7890(/\S+) .*--json '(.*)'", line).groups() for line in lines]


@pytest.mark.backends("sqlite")
async def test_the_requests_of_the_http_guide_do_what_it_says(store):
    async def invoice(ctx, customer: str):
        return (await ctx.wait_for("approval"))["approved"]

    await store.create_workflow("billing.invoice")
    worker = await pgqrs.consumer("w", 0, "billing.invoice").handler(invoice).create(store)
    trigger, answer, bulk = posted()
    attributes = {"customer": "c42"}
    async with http.client(store) as client:

        async def post(request, run_id=0):
            path, body = request
            done = await client.post(path.replace("/42/", f"/{run_id}/"), json=json.loads(body))
            assert done.is_success, done.text
            return done.json()

        run_id = (await post(trigger))["run_id"]
        other = await pgqrs.workflow("billing.invoice").trigger("c42", attributes=attributes).execute(store)
        await worker.run_until_idle()
        await post(answer, run_id)
        await worker.run_until_idle()
        cancelled = await post(bulk)
    await worker.close()

    found = pgqrs.workflow("billing.invoice")
    assert (await found.get_run(run_id, store)).output() is True
    assert (cancelled["done"], (await found.get_run(other, store)).status) == (1, "CANCELLED")


@pytest.mark.backends("sqlite")
@pytest.mark.several_processes
async def test_sigterm_stops_the_worker_the_dispatcher_and_the_consumer_of_the_guide(tmp_path):
    (tmp_path / "serve.py").write_text(block("guides/workers.md", "python", "consumer.close()"))
    async with pgqrs.connect(f"sqlite:///{tmp_path / 'app.db'}") as store:
        await store.create_workflow("ship")
        await pgqrs.workflow("ship").trigger("A 7").execute(store)
        await store.create_queue("emails")
        await (await store.producer("emails")).enqueue("ann@example.org")

    with subprocess.Popen(
        [sys.executable, "serve.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            at_work = {process.stdout.readline(), process.stdout.readline()}
            process.terminate()
            rest, errors = process.communicate(timeout=30)
        finally:
            process.kill()

    assert at_work == {"published order.shipped\n", "sent ann@example.org\n"}, errors
    assert (process.returncode, rest) == (0, "stopped\n"), errors
