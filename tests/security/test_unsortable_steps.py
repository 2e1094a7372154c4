"""Steps whose times or ordinals cannot be read: a list of them has an end, and holds each of them once."""

import asyncio
import json

import pytest

import pgqrs
from pgqrs.api.operations.export import export_run
from pgqrs.db.database import Kind
from rig.probes import Probe

pytestmark = pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))

POSTGRES = [
    ("completed_at", "infinity"),
    ("completed_at", "-infinity"),
    ("started_at", "0044-03-15 BC"),
    ("completed_at", "294276-12-31"),
]
SQLITE = [
    *(("completed_at", each) for each in (2**63 - 1, -(2**63), "text", b"\xff", 1.5, 9e999, -9e999)),
    *(("ordinal", each) for each in ("text", "12abc", b"\x00", 1.5, 9e999, -(2**63), 2**63 - 1)),
]


@pytest.fixture
async def spoiled(store, config):
    """A run of eight steps, one of which holds the value."""
    await store.create_workflow("flow")

    async def handler(ctx, params=None):
        for n in range(8):
            await ctx.step(f"step-{n}", int)

    run_id = await pgqrs.workflow("flow").trigger({}).execute(store)
    worker = await pgqrs.consumer("worker", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    async def spoil(column, value):
        table = store.database.dialect.table("pgqrs_workflow_steps")
        mark = f"'{value}'::timestamptz" if config.backend == "postgres" else "?"
        given = () if config.backend == "postgres" else (value,)

        async def write(unit):
            await unit.run_as_given(f"update {table} set {column} = {mark} where step_id = 'step-3'", given)

        await store.database.perform(write, kind=Kind.UNIT, idempotent=False)
        return run_id

    return spoil


async def _looked_at(store, run_id):
    async with asyncio.timeout(30):
        exported = [step["step_id"] for step in (await export_run(store, run_id))["steps"]]
    probe, listed, path = Probe(store), [], f"/api/v1/runs/{run_id}/steps?limit=2"
    for _ in range(20):
        body = json.loads((await probe.get(path)).content)
        listed += [step["step_id"] for step in body["items"]]
        if not body.get("next_cursor"):
            break
        path = f"/api/v1/runs/{run_id}/steps?limit=2&cursor={body['next_cursor']}"
    assert probe.broken == {}
    assert sorted(exported) == [f"step-{n}" for n in range(8)]
    assert len(listed) == len(set(listed)), listed
    # Behind a time that is beyond all others there is nothing more to show.
    assert {f"step-{n}" for n in range(8)} - set(listed) <= {"step-3"}


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(("column", "value"), POSTGRES)
async def test_steps_with_a_time_beyond_all_datetimes_are_listed_once(store, spoiled, column, value):
    await _looked_at(store, await spoiled(column, value))


@pytest.mark.backends("sqlite", "turso")
@pytest.mark.parametrize(("column", "value"), SQLITE)
async def test_steps_with_a_value_of_another_type_are_listed_once(store, spoiled, column, value):
    await _looked_at(store, await spoiled(column, value))
