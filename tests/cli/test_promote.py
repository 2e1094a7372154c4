"""`pgqrs promote` from the command line."""

import os
import secrets

import pytest

import pgqrs
from conftest import DSN, drop_schema

pytestmark = pytest.mark.backends("postgres")

flow = pgqrs.workflow("flow")


@pytest.fixture
async def file(tmp_path):
    """A database with a few runs in it."""
    dsn = f"sqlite:///{tmp_path / 'app.db'}"
    async with pgqrs.connect(dsn, schema="public") as store:
        await store.create_workflow("flow")
        await flow.trigger_many([1, 2, 3]).execute(store)
    return dsn


@pytest.fixture
async def schema(command, monkeypatch):
    name = f"t_{secrets.token_hex(8)}"
    # SQLite keeps schemas in files of their own: the target's name is given as an option, the source has none.
    monkeypatch.delenv("PGQRS_SCHEMA")
    yield name
    await drop_schema(pgqrs.Config(os.environ[DSN], schema=name))


async def test_it_asks_first_counts_on_request_and_then_does_it(command, file, schema):
    to = ("--target-schema", schema)

    assert (await command("promote", file, *to)).code == 2
    planned = await command("promote", file, *to, "--dry-run")
    assert (planned.code, "would copy" in planned.out) == (0, True), planned.err
    done = await command("promote", file, *to, "--yes", "-o", "json")
    assert done.code == 0, done.err
    assert {each["table"]: each["rows"] for each in done.json["tables"]}["pgqrs_workflow_runs"] == 3
    assert "pgqrs_workflow_runs: 3 rows" in done.err
    async with pgqrs.connect(os.environ[DSN], schema=schema) as store:
        assert len(await flow.runs(store)) == 3
    again = await command("promote", file, *to, "--yes")
    assert (again.code, "before: nothing was done" in again.out) == (0, True)


async def test_the_file_then_refuses_every_command(command, file, schema):
    await command("promote", file, os.environ[DSN], "--target-schema", schema, "--yes")

    said = await command("run", "list", "-d", file)

    assert (said.code, f"schema '{schema}'" in said.err) == (9, True)


async def test_a_target_in_use_is_a_conflict(command, store, config, file, schema):
    await store.create_queue("tasks")

    said = await command("promote", file, config.dsn, "--target-schema", config.schema, "--yes")

    assert (said.code, "in use" in said.err) == (5, True)
