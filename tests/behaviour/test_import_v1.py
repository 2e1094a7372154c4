"""The former layout: one row per execution becomes definitions and runs."""

import pytest

import pgqrs
from pgqrs.db.queries import Query

OLD = """
create table {prefix}old_pgqrs_workflows (workflow_id text primary key, name text not null, status text not null,
    input {json}, output {json}, error {json}, created_at {stamp} not null, updated_at {stamp} not null, executor_id text)
"""
OLD_STEPS = """
create table {prefix}old_pgqrs_workflow_steps (workflow_id text not null, step_id text not null, status text not null,
    input {json}, output {json}, error {json}, started_at {stamp}, completed_at {stamp}, primary key (workflow_id, step_id))
"""
ROWS = [
    ("a1", "zip", "SUCCESS", '{"n": 1}', "42", None),
    ("b2", "zip", "RUNNING", '{"n": 2}', None, None),
    ("c3", "mail", "ERROR", "null", None, '{"message": "no"}'),
]


@pytest.fixture
async def old(store, config):
    words = {"prefix": f'"{config.schema}".', "json": "jsonb", "stamp": "timestamptz"}
    if config.backend != "postgres":
        words = {"prefix": "", "json": "text", "stamp": "text"}
    prefix = words["prefix"]
    stamp = "cast('2024-05-01 12:00:00' as timestamptz)" if config.backend == "postgres" else "'2024-05-01 12:00:00'"
    for text in (OLD, OLD_STEPS):
        await store.database.execute(Query("old", text.format(**words)))
    cast = "::jsonb" if config.backend == "postgres" else ""
    quoted = lambda value: "null" if value is None else f"'{value}'{cast}"  # noqa: E731
    for id_, name, status, *values in ROWS:
        listed = ", ".join(map(quoted, values))
        await store.database.execute(
            Query(
                "row",
                f"insert into {prefix}old_pgqrs_workflows values ('{id_}', '{name}', '{status}', {listed}, {stamp}, {stamp}, null)",
            )
        )
    for step, status, output in (("list", "SUCCESS", "7"), ("pack", "RUNNING", None)):
        await store.database.execute(
            Query(
                "step",
                f"insert into {prefix}old_pgqrs_workflow_steps values ('b2', '{step}', '{status}', null, {quoted(output)}, null, {stamp}, {stamp})",
            )
        )
    return store


@pytest.mark.row("B10.4")
async def test_executions_become_runs_and_unfinished_ones_go_on_from_their_last_step(old, clock):
    admin = pgqrs.admin(old)

    assert await admin.import_v1() == 3
    assert await admin.import_v1() == 0

    zipped = {run.input["n"]: run for run in await pgqrs.workflow("zip").runs(old)}
    assert (zipped[1].status, zipped[1].output()) == ("SUCCESS", 42)
    assert zipped[1].created_at.isoformat().startswith("2024-05-01T12:00:00")
    [mail] = await pgqrs.workflow("mail").runs(old)
    assert (mail.status, mail.error) == ("ERROR", {"message": "no"})

    async def handler(ctx, params):
        return [await ctx.step("list", lambda: "again"), await ctx.step("pack", lambda: "packed")]

    worker = await pgqrs.consumer("w", 0, "zip").handler(handler).create(old)
    await worker.run_until_idle()
    await worker.close()

    assert (await zipped[2].refresh()).output() == [7, "packed"]


async def test_a_table_name_that_is_none_is_refused(old):
    with pytest.raises(pgqrs.ConfigError, match="table name"):
        await pgqrs.admin(old).import_v1(workflows='x"; drop table pgqrs_queues; --')
