"""`make fuzz ROWS=10000`: hostile rows in every table, beside healthy runs, and whether all that reads them keeps working.

The oracle: every healthy run ends right, every healthy message is handled, every healthy event is published, a worker
that polls lives to its end, no response has a status of 500 or above, and the doctor's statements make every row readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import pgqrs
from pgqrs.api.operations.export import export_run
from pgqrs.api.operations.why import why
from pgqrs.api.store import Store
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.upkeep import unreadable_rows
from pgqrs.engine.schedules.scheduler import Scheduler
from rig.hostile_rows import QUEUE, WORKFLOW, HostileRows, furnish
from rig.probes import Probe

HEALTHY = 200
# The clock is set by hand, so that what is retried comes round: this many times a quarter of an hour.
ROUNDS = 6


async def handler(ctx: Any, params: Any = None) -> list[Any]:
    one = await ctx.step("one", lambda: 1)
    two = await ctx.step("two", lambda: 2)
    return [one, two, params]


async def examine(store: Store, clock: pgqrs.ManualClock, *, rows: int, seed: int) -> dict[str, Any]:
    """What came of it, for people; AssertionError where something did not keep working."""
    hostile = HostileRows(store, seed)
    await hostile.write(rows, **await furnish(store))
    flow = pgqrs.workflow(WORKFLOW)
    run_ids = await flow.trigger_many([{"n": n} for n in range(HEALTHY)]).execute(store)
    sent = set(await (await store.producer(QUEUE)).enqueue_many([{"healthy": n} for n in range(HEALTHY)]))
    await pgqrs.schedules(store).create("healthy", WORKFLOW, cron="*/5 * * * *", overlap="allow", catch_up="all")

    worker = await pgqrs.consumer("worker", 0, WORKFLOW).handler(handler).concurrency(50).create(store)
    polling = asyncio.ensure_future(worker.poll_forever())
    handled, published = await _work(store, clock, run_ids)
    assert not polling.done(), f"the worker ended: {polling}"
    worker.stop()
    await asyncio.wait_for(polling, 60)

    ended = [await flow.get_run(run_id, store) for run_id in run_ids]
    right = sum(run.status == "SUCCESS" and run.output() == [1, 2, {"n": n}] for n, run in enumerate(ended))
    assert right == HEALTHY, Counter((str(run.status), run.last_error) for run in ended)
    assert sent <= handled, f"{len(sent - handled)} healthy messages were not handled"
    assert {slot.state for slot in await pgqrs.schedules(store).slots("healthy")} == {"fired"}
    await pgqrs.retention(store).apply(gently=False)
    for run_id in hostile.run_ids[:: max(1, len(hostile.run_ids) // 500)]:
        with contextlib.suppress(pgqrs.RunNotFound):
            await why(run_id, store)
            await export_run(store, run_id)

    probe = Probe(store)
    await probe.ask_everything(most_of_each=100)
    await probe.read_lists(pages=50)
    await probe.act(hostile.run_ids[:: max(1, len(hostile.run_ids) // 100)])
    assert probe.broken == {}, "\n".join(
        f"{target[:200]}: {said}" for target, said in list(probe.broken.items())[:10]
    )

    await pgqrs.admin(store).doctor(verify=True)
    statements = await _readable(store)
    return {
        "rows": sum(hostile.written.values()), "tables": len(hostile.written), "refused by the database": hostile.refused, "runs": len(hostile.run_ids),
        "healthy runs right": right, "healthy messages handled": len(sent & handled), "events published": published,
        "responses": dict(sorted(probe.statuses.items())), "statements of the doctor": statements,
        "runs now": dict(Counter(str(row[0]) for row in await store.database.fetch(Query("now", "select status from pgqrs_workflow_runs")))),
    }  # fmt: skip


async def _work(store: Store, clock: pgqrs.ManualClock, run_ids: list[int]) -> tuple[set[int], int]:
    handled: set[int] = set()
    published = 0

    async def handle(message: Any) -> None:
        handled.add(message.id)
        message.payload  # noqa: B018 - raises for what is no JSON

    async def publish(event: Any) -> None:
        nonlocal published
        published += 1

    consumer = await store.consumer(QUEUE, name="consumer")
    for _ in range(ROUNDS):
        await consumer.process(handle, concurrency=50, until_idle=True)
        await pgqrs.dispatcher(store).to(publish).run_until_idle()
        await Scheduler(store.database, store.config).fire_due()
        # The polling worker has the same database: until it has done what is due.
        deadline = time.monotonic() + 120
        while len(await _finished(store, run_ids)) < len(run_ids) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        clock.advance(900)
    return handled, published


async def _finished(store: Store, run_ids: list[int]) -> list[int]:
    found = await store.database.fetch(
        Query("finished", "select run_id from pgqrs_workflow_runs where status = 'SUCCESS'")
    )
    return sorted(set(run_ids) & {row[0] for row in found})


async def _readable(store: Store) -> int:
    """How many of the doctor's statements it takes until every row can be read."""
    for number in range(400):
        found = await unreadable_rows.unreadable(store.database, whole=True)
        if not found:
            return number
        statement = found[0].fix
        await store.database.perform(
            lambda unit, s=statement: unit.run_as_given(s, ()), kind=Kind.UNIT, idempotent=False
        )
    raise AssertionError("the doctor's statements do not make the rows readable")


async def main(rows: int, seed: int) -> None:
    # Thousands of runs fail here, as they should.
    logging.disable(logging.CRITICAL)
    from rig import postgres

    with tempfile.TemporaryDirectory(prefix="pgqrs-rows-") as folder, postgres.provide() as dsn:
        chosen = {"sqlite": f"sqlite:///{folder}/rows.db", "postgres": dsn, "turso": f"turso:///{folder}/turso.db"}
        for backend in (os.environ.get("ON") or "sqlite postgres").split():
            clock, began = pgqrs.ManualClock(), time.monotonic()
            async with await pgqrs.connect_with(pgqrs.Config(chosen[backend]), install=True, clock=clock) as store:
                told = await examine(store, clock, rows=rows, seed=seed)
            print(f"{backend}, seed {seed}, {time.monotonic() - began:.0f} s: no 500, no worker ended")
            for name, value in told.items():
                print(f"    {name}: {value:,}" if isinstance(value, int) else f"    {name}: {value}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(int(os.environ.get("ROWS") or 10_000), int(os.environ.get("SEED") or 1)))
    except AssertionError as error:
        sys.exit(f"did not hold: {error}")
