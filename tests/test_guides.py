"""What guides say about other software is so: roles of PostgreSQL, Django on it, files in other languages."""

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
import yaml

import pgqrs

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
