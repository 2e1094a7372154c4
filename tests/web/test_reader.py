"""A database role that may only read is enough to show everything."""

import dataclasses
import secrets

import psycopg
import pytest
from psycopg import sql

import pgqrs
from pgqrs.web import pages
from pgqrs.web.application import endpoints
from rig.asgi import Browser
from rig.http import filled, opened

flow = pgqrs.workflow("flow")
# They wait on purpose, or have no end; or need a query.
NOT_ASKED = ("/stream", "/runs/bulk", "/runs/{run_id:int}/download")


@pytest.fixture
def reader(config):
    """The same database for a role that has nothing but SELECT."""
    name = f"reader_{secrets.token_hex(6)}"
    with psycopg.connect(config.dsn, autocommit=True) as owner:

        def run(text):
            owner.execute(sql.SQL(text).format(name=sql.Identifier(name), schema=sql.Identifier(config.schema)))

        def allow():
            run("create role {name} login password 'secret'")
            run("grant usage on schema {schema} to {name}")
            run("grant select on all tables in schema {schema} to {name}")

        host = config.dsn.rpartition("@")[2]
        yield dataclasses.replace(config, dsn=f"postgresql://{name}:secret@{host}"), allow
        run("revoke all on all tables in schema {schema} from {name}")
        run("revoke all on schema {schema} from {name}")
        run("drop role {name}")


@pytest.mark.backends("postgres")
async def test_who_may_only_read_sees_every_page_and_every_list(store, reader):
    config, allow = reader
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    await flow.trigger({"n": 1}).execute(store)
    await store.consumer("tasks")
    allow()

    async with pgqrs.connect_with(config) as seen:
        browser = Browser(opened(seen, read_only=True))
        answers = {}
        for endpoint in endpoints():
            if endpoint.method == "GET" and not endpoint.path.endswith(NOT_ASKED):
                names = {"/queues": "tasks", "/workflows": "flow", "/schedules": "nightly"}
                named = next((name for start, name in names.items() if endpoint.path.startswith(start)), "go")
                path = filled(endpoint, name=named)
                answers[path] = (await browser.get(path)).status
        with pytest.raises(pgqrs.PgqrsError):
            await flow.trigger(None).execute(seen)

    assert len(answers) > len(pages.ENDPOINTS) / 2
    # The run has not ended: its result is not there yet.
    assert answers.pop("/api/v1/runs/1/result") == 202
    # The application that it is mounted into knows who asks: there is nothing to log in to here.
    assert answers.pop("/login") == 403
    assert {path: status for path, status in answers.items() if status != 200} == {}
