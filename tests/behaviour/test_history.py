"""The history of a run: what happened, by whom, in order, written with the change itself."""

import itertools

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.queries import Query
from pgqrs.db.runs import history
from pgqrs.serialization import decode


async def events(store, run_id):
    return await history.events(store.database, run_id, limit=1000, after=0)


async def told(store, run_id):
    return [event.event_type for event in await events(store, run_id)]


async def at_level(config, clock, audit, **settings):
    return await pgqrs.connect_with(config.with_changes(audit=audit, **settings), install=True, clock=clock)


async def work(store, handler):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def busy(store, clock):
    """A run that fails once, sleeps, waits for a signal and succeeds."""
    failing = [True]

    async def handler(ctx, params):
        if failing:
            failing.pop()
            raise RuntimeError("once")
        await ctx.sleep(60)
        return await ctx.wait_for("go")

    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    run_id = await flow.trigger().execute(store)
    for _ in range(3):
        await work(store, handler)
        clock.advance(100)
    await flow.signal(run_id, store, "go", 7, actor="ann")
    await work(store, handler)
    assert (await flow.get_run(run_id, store)).output() == 7
    return run_id


LEVELS = {
    "none": [],
    "changes": ["retried", "paused", "paused", "signalled"],
    "normal": ["created", "retried", "paused", "paused", "signalled", "succeeded"],
    "full": [
        "created", "leased", "started", "retried", "leased", "paused", "leased", "paused", "signalled", "leased",
        "succeeded",
    ],
}  # fmt: skip


@pytest.mark.parametrize("audit", LEVELS)
async def test_a_level_says_how_much_is_kept(connect, config, clock, audit):
    await connect()
    store = await at_level(config, clock, audit)
    run_id = await busy(store, clock)
    seen = await told(store, run_id)
    await store.close()

    assert seen == LEVELS[audit]


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(pgqrs.ConfigError, match="none, changes, normal, full"):
        pgqrs.Config(audit="everything")
    with pytest.raises(pgqrs.ConfigError, match="exploded"):
        pgqrs.Config(outbox="succeeded,exploded")


async def test_what_people_do_is_told_with_who_and_why(store, flow):
    run_id = await flow.trigger().execute(store)
    await flow.pause(run_id, store, reason="holiday", actor="ann")
    await flow.resume(run_id, store, actor="bob")
    await flow.cancel(run_id, store, reason="enough", actor="cid")
    await flow.restart(run_id, store, actor="dan")
    await flow.delete(run_id, store, reason="by mistake", actor="eve")
    await flow.restore(run_id, store, actor="fay")

    told = [(e.event_type, e.actor, decode(e.data or "null")) for e in await events(store, run_id)]
    # Each call has an id of its own.
    assert len(told[4][2].pop("request")) == 32
    assert told == [
        ("created", None, None),
        ("paused", "ann", {"waiting_for": "holiday"}),
        ("resumed", "bob", None),
        ("cancelled", "cid", {"reason": "enough"}),
        ("restarted", "dan", {"reopened": []}),
        ("deleted", "eve", {"reason": "by mistake"}),
        ("restored", "fay", None),
    ]


async def test_a_failed_step_and_run_are_told_with_their_errors(store, flow, run):
    def fail():
        raise ValueError("bad 17")

    async def handler(ctx, params):
        await ctx.step("charge", fail)

    done = await run(handler, max_attempts=1)

    [_, step, failed] = await events(store, done.run_id)
    assert (step.event_type, failed.event_type) == ("step_failed", "failed")
    assert decode(step.data) == {"step": "charge", "attempt": 1, "type": "ValueError", "message": "bad 17"}
    assert decode(failed.data)["error"] == "ValueError: bad 17"
    assert decode(failed.data)["signature"] == done.error_signature
    assert done.error_signature.startswith("ValueError-")


async def test_a_retried_run_tells_each_failure_of_its_step_once(store, flow, run, clock):
    def fail():
        raise ValueError("bad")

    async def handler(ctx, params):
        await ctx.step("charge", fail)

    waiting = await run(handler, max_attempts=2)
    clock.advance(60)
    await run(handler, run_id=waiting.run_id)

    assert await told(store, waiting.run_id) == ["created", "step_failed", "retried", "step_failed", "failed"]


async def test_a_run_that_its_worker_hands_back_is_told_so(live_store):
    import asyncio

    await live_store.create_workflow("flow")
    began = asyncio.Event()

    async def handler(ctx, params):
        began.set()
        await asyncio.Event().wait()

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).grace(0).create(live_store)
    polling = asyncio.create_task(worker.poll_forever())
    run_id = await pgqrs.workflow("flow").trigger().execute(live_store)
    await began.wait()
    worker.stop()
    await polling

    assert await told(live_store, run_id) == ["created", "handed_back"]


async def test_no_other_status_can_be_stored(store, flow):
    run_id = await flow.trigger().execute(store)

    with pytest.raises(pgqrs.PgqrsError):
        await store.database.execute(
            Query("bad", "update pgqrs_workflow_runs set status = 'leased' where run_id = :run_id"), run_id=run_id
        )


async def test_a_lost_worker_is_told_by_the_next(store, flow, clock):
    from pgqrs.db.runs import claims
    from pgqrs.db.tables import queues
    from pgqrs.db.tables.messages import Source

    run_id = await flow.trigger().execute(store)
    queue_id = (await queues.get(store.database, "flow")).queue_id
    await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=77, batch=1)
    clock.advance(31)

    async def handler(ctx, params):
        return "done"

    await work(store, handler)

    seen = await events(store, run_id)
    assert [e.event_type for e in seen] == ["created", "lease_lost", "succeeded"]
    assert decode(seen[1].data) == {"worker_id": 77}


async def test_a_run_whose_workers_were_all_lost_is_told_to_have_failed(store, flow, clock):
    from pgqrs.db.runs import claims
    from pgqrs.db.tables import queues
    from pgqrs.db.tables.messages import Source

    run_id = await flow.trigger(max_attempts=1).execute(store)
    queue_id = (await queues.get(store.database, "flow")).queue_id
    await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=77, batch=1)
    clock.advance(31)

    await work(store, lambda ctx, params: None)

    assert await told(store, run_id) == ["created", "failed"]
    assert (await flow.get_run(run_id, store)).error_signature == "WorkerLost"


async def test_children_are_told_whose_they_are(store, flow, run):
    await store.create_workflow("child")

    async def handler(ctx, params):
        await ctx.spawn("child", 1)

    done = await run(handler)
    [child] = await pgqrs.workflow("child").runs(store)

    [created] = await events(store, child.run_id)
    assert decode(created.data) == {"parent_run_id": done.run_id}


@pytest.mark.parametrize("statement", ["insert_events", "insert_outbox"])
@pytest.mark.parametrize("verb", ["trigger", "cancel", "pause", "signal", "restart", "delete"])
async def test_no_change_without_its_event(connect, config, clock, verb, statement):
    """The event is refused, and the change with it."""
    await connect()
    store = await at_level(config, clock, "normal", outbox="*")
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    run_id = await flow.trigger().execute(store)
    if verb == "restart":
        await flow.cancel(run_id, store)
    before = await whole(store)

    class Refused(Exception):
        pass

    if (verb, statement) == ("trigger", "insert_events") and store.database.dialect.is_postgres:
        # There the event is part of the statement that makes the run.
        statement = "trigger_runs"

    def refuse(point):
        if point == ("sql", statement):
            raise Refused

    calls = {
        "trigger": lambda: flow.trigger().execute(store),
        "signal": lambda: flow.signal(run_id, store, "go"),
    }
    with faults.injected(refuse), pytest.raises(Refused):
        await calls.get(verb, lambda: getattr(flow, verb)(run_id, store))()
    after = await whole(store)
    await store.close()

    assert after == before


async def whole(store):
    tables = ("workflow_runs", "messages", "signals", "workflow_events", "outbox_events")
    return {
        table: [
            tuple(row) for row in await store.database.fetch(Query("t", f"select * from pgqrs_{table} order by 1"))
        ]
        for table in tables
    }


# -- the outbox ------------------------------------------------------------------------------------------


async def outbox(store):
    sql = "select aggregate_id, workflow, event_type, {text payload}, event_uuid from pgqrs_outbox_events order by event_id"
    return [tuple(row) for row in await store.database.fetch(Query("outbox", sql))]


async def test_chosen_events_go_to_the_outbox_too(connect, config, clock):
    await connect()
    store = await at_level(config, clock, "none", outbox="created, succeeded")
    run_id = await busy(store, clock)
    rows = await outbox(store)
    assert await told(store, run_id) == []
    await store.close()

    assert [row[:3] for row in rows] == [
        (run_id, "flow", "pgqrs.run.created"),
        (run_id, "flow", "pgqrs.run.succeeded"),
    ]
    assert len({row[4] for row in rows}) == 2


async def test_every_event_can_be_published(connect, config, clock):
    await connect()
    store = await at_level(config, clock, "full", outbox="*")
    run_id = await busy(store, clock)
    published = [row[2].removeprefix("pgqrs.run.") for row in await outbox(store)]
    kept = await told(store, run_id)
    await store.close()

    assert published == kept == LEVELS["full"]


async def test_what_a_handler_emits_is_published_once_however_often_it_is_replayed(store, flow, run, clock):
    async def ship(ctx, n):
        await ctx.emit("order.shipped", {"n": n})
        return n

    async def handler(ctx, params):
        await ctx.emit("order.begun")
        await ctx.step("ship", ship, ctx, 1)
        await ctx.sleep(60)
        await ctx.step("ship", ship, ctx, 2)
        await ctx.emit("order.done", [1, 2])

    waiting = await run(handler)
    clock.advance(61)
    done = await run(handler, run_id=waiting.run_id)

    assert done.status == "SUCCESS"
    assert [(row[2], decode(row[3])) for row in await outbox(store)] == [
        ("order.begun", None),
        ("order.shipped", {"n": 1}),
        ("order.shipped", {"n": 2}),
        ("order.done", [1, 2]),
    ]


async def test_what_a_failed_attempt_of_a_step_emitted_is_not_published(store, flow, run, clock):
    attempts = []

    async def ship(ctx):
        attempts.append(1)
        await ctx.emit("order.shipped", len(attempts))
        if len(attempts) == 1:
            raise RuntimeError("after the emit")

    async def handler(ctx, params):
        await ctx.step("ship", ship, ctx, retry=pgqrs.RetryPolicy(max_attempts=2))

    waiting = await run(handler)
    clock.advance(60)
    await run(handler, run_id=waiting.run_id)

    assert [(row[2], row[3]) for row in await outbox(store)] == [("order.shipped", "2")]


async def test_plain_handlers_emit_too(store, flow, run):
    def ship(ctx):
        ctx.emit("order.shipped", 1)
        return "shipped"

    def handler(ctx, params):
        ctx.emit("order.begun")
        return ctx.step("ship", ship, ctx)

    done = await run(handler)

    assert done.output() == "shipped"
    assert [row[2] for row in await outbox(store)] == ["order.begun", "order.shipped"]


@pytest.mark.backends("sqlite", "postgres")
async def test_a_transaction_emits_when_it_commits(store, flow, run, clock):
    tries = []

    async def handler(ctx, params):
        async def work(tx):
            tries.append(1)
            tx.emit("order.paid", {"try": len(tries)})
            if len(tries) == 1:
                raise RuntimeError("rolled back")
            return "paid"

        return await ctx.transaction("pay", work)

    waiting = await run(handler)
    clock.advance(60)
    done = await run(handler, run_id=waiting.run_id)

    assert done.output() == "paid"
    assert [(row[2], decode(row[3])) for row in await outbox(store)] == [("order.paid", {"try": 2})]


async def test_a_stale_worker_emits_nothing(store, flow, clock):
    from pgqrs.db.runs import claims, settlement
    from pgqrs.db.runs.history import Emission
    from pgqrs.db.runs.records import RunWrite, StepRecord
    from pgqrs.db.tables import queues
    from pgqrs.db.tables.messages import Source
    from pgqrs.types import StepStatus

    run_id = await flow.trigger().execute(store)
    queue_id = (await queues.get(store.database, "flow")).queue_id
    [claim] = await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=1, batch=1)
    clock.advance(31)
    await claims.claim(store.database, [Source(queue_id, 30.0)], worker_id=2, batch=1)

    step = StepRecord("emit", 0, StepStatus.SUCCESS, output="null")
    held = await settlement.commit(
        store.database, [RunWrite(claim.fence, (step,), emissions=(Emission(run_id, "order.shipped", "1"),))]
    )

    assert held == set()
    assert await outbox(store) == []


@pytest.mark.parametrize("name", ["", "a b", "order/shipped", "x" * 151, 7, "é"])
async def test_an_event_type_that_cannot_be_one_is_refused(run, name):
    async def handler(ctx, params):
        await ctx.emit(name)

    done = await run(handler, max_attempts=1)

    assert done.status == "ERROR"
    assert "event type" in done.last_error


async def test_updated_at_moves_with_every_change(store, flow, run, clock):
    run_id = await flow.trigger().execute(store)
    seen = [(await flow.get_run(run_id, store)).updated_at]

    async def handler(ctx, params):
        return 1

    for change in (
        lambda: flow.pause(run_id, store),
        lambda: flow.resume(run_id, store),
        lambda: flow.cancel(run_id, store),
        lambda: flow.restart(run_id, store),
        lambda: flow.delete(run_id, store),
        lambda: flow.restore(run_id, store),
        lambda: run(handler, run_id=run_id),
    ):
        clock.advance(1)
        await change()
        seen.append((await flow.get_run(run_id, store)).updated_at)

    assert [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(seen)] == [1.0] * 7


@pytest.mark.parametrize("text", ["a\0b", "\ud800", 5, b"x"])
async def test_a_reason_or_actor_that_no_database_stores_is_refused(store, flow, text):
    run_id = await flow.trigger().execute(store)
    admin = pgqrs.admin(store)

    for refused in (
        *(getattr(flow, verb)(run_id, store, reason=text) for verb in ("cancel", "pause", "delete")),
        *(
            getattr(flow, verb)(run_id, store, actor=text)
            for verb in ("cancel", "pause", "delete", "restart", "reset")
        ),
        flow.signal(run_id, store, "go", actor=text),
        flow.resume(run_id, store, step=text),
        flow.reset(run_id, store, from_step=text),
        admin.cancel_runs("status:pending", reason=text, dry_run=False),
        admin.delete_runs("status:pending", actor=text, dry_run=False),
        admin.restart_runs("status:pending", actor=text, dry_run=False),
    ):
        with pytest.raises(pgqrs.ConfigError, match=r"must be (text|a string)"):
            await refused

    assert await told(store, run_id) == ["created"]


@pytest.mark.parametrize("run_id", [True, -1, 2**63, "1", None, 1.0])
async def test_what_is_no_id_of_a_run_is_refused(store, flow, run_id):
    for refused in (
        flow.get_run(run_id, store),
        flow.cancel(run_id, store),
        flow.steps(run_id, store),
        flow.events(run_id, store),
    ):
        with pytest.raises(pgqrs.ConfigError, match="run_id must be a whole number"):
            await refused


async def test_a_failed_run_that_is_called_once_more_says_that_it_began_anew(store):
    tries = [False, True]

    @pgqrs.workflow(name="called")
    async def called(ctx, params):
        if tries.pop():
            raise RuntimeError("once")

    held = await pgqrs.admin(store).create_workflow("called")
    with pytest.raises(RuntimeError):
        await called(held, None)
    await called(held, None)

    assert await told(store, held.run_id) == ["created", "failed", "restarted", "succeeded"]
