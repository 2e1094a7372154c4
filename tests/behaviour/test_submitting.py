"""Submitting runs: priority, times, attempts, and keys that make a trigger count once."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

import pgqrs
from pgqrs import faults


async def finished_order(store, names, **options):
    """Works through everything that is due, one run at a time; what was run, in order."""
    order = []

    async def handler(ctx, params):
        order.append(params)

    worker = await pgqrs.worker("w", concurrency=1).workflows(dict.fromkeys(names, handler)).create(store)
    await worker.run_until_idle()
    await worker.close()
    return order


async def test_higher_priority_comes_first_within_one_workflow_and_across(store):
    for name in ("a", "b"):
        await store.create_workflow(name)
    for name, priority in (("a", 0), ("b", 5), ("a", 9), ("b", -1), ("a", 5)):
        await pgqrs.workflow(name).trigger(f"{name}{priority}", priority=priority).execute(store)

    order = await finished_order(store, ["a", "b"])

    assert order[0] == "a9"
    assert set(order[1:3]) == {"a5", "b5"}
    assert order[3:] == ["a0", "b-1"]


@pytest.mark.row("B8.10")
async def test_a_short_queue_is_not_starved_by_the_backlog_of_another(store):
    for name in ("backlog", "short"):
        await store.create_workflow(name)
    await pgqrs.workflow("backlog").trigger_many(["backlog"] * 200).execute(store)
    await pgqrs.workflow("short").trigger_many(["short"] * 3).execute(store)

    order = await finished_order(store, ["backlog", "short"])

    # Behind the whole backlog the first of them would be the 201st. At random its place is about the second.
    assert order.index("short") < 100


@pytest.mark.backends("postgres")
async def test_nor_when_the_planner_knows_how_few_queues_there_are(store, config):
    """It might read them in the order of their ids then, whatever order was asked for."""
    for name in ("backlog", "short"):
        await store.create_workflow(name)
    with psycopg.connect(config.dsn, autocommit=True) as other:
        other.execute(f"vacuum {config.schema}.pgqrs_queues")
    await pgqrs.workflow("backlog").trigger_many(["backlog"] * 200).execute(store)
    await pgqrs.workflow("short").trigger_many(["short"] * 3).execute(store)

    order = await finished_order(store, ["backlog", "short"])

    assert order.index("short") < 100


async def test_a_run_waits_for_its_time(store, flow, run, clock):
    async def handler(ctx, params):
        return "done"

    at = await flow.trigger(run_at=clock.now() + timedelta(hours=1)).execute(store)
    delayed = await flow.trigger(delay=timedelta(minutes=30)).execute(store)

    clock.advance(1800 - 1)
    assert [(await run(handler, run_id=each)).status for each in (at, delayed)] == ["PENDING", "PENDING"]
    clock.advance(1)
    assert [(await run(handler, run_id=each)).status for each in (at, delayed)] == ["PENDING", "SUCCESS"]
    clock.advance(1800)
    assert (await run(handler, run_id=at)).status == "SUCCESS"


async def test_max_attempts_of_the_trigger_wins_over_the_setting(run, clock):
    async def handler(ctx, params):
        raise RuntimeError("again")

    done = await run(handler, max_attempts=1)

    assert (done.status, done.attempt, done.max_attempts) == ("ERROR", 1, 1)


# -- idempotency keys ------------------------------------------------------------------------------------


async def test_the_same_key_and_input_give_the_same_run(store, flow):
    first = await flow.trigger({"a": 1, "b": [2]}, idempotency_key="order-1").execute(store)
    again = await flow.trigger({"b": [2], "a": 1}, idempotency_key="order-1").execute(store)
    other = await flow.trigger({"a": 1, "b": [2]}, idempotency_key="order-2").execute(store)

    assert again == first != other
    assert (await flow.get_run(first, store)).idempotency_key == "order-1"
    assert len(await flow.runs(store)) == 2


@pytest.mark.row("B7.11")
@pytest.mark.parametrize("params", [{"a": 2}, {"a": 1.0}, {"a": True}, None, [{"a": 1}]])
async def test_the_same_key_with_another_input_is_a_conflict(store, flow, params):
    first = await flow.trigger({"a": 1}, idempotency_key="order-1").execute(store)

    with pytest.raises(pgqrs.IdempotencyConflict, match="another") as caught:
        await flow.trigger(params, idempotency_key="order-1").execute(store)

    assert (caught.value.key, caught.value.run_id) == ("order-1", first)
    assert len(await flow.runs(store)) == 1


async def test_a_key_is_one_for_all_workflows(store, flow):
    await store.create_workflow("other")
    await flow.trigger(1, idempotency_key="k").execute(store)

    with pytest.raises(pgqrs.IdempotencyConflict):
        await pgqrs.workflow("other").trigger(1, idempotency_key="k").execute(store)


@pytest.mark.row("B7.11")
async def test_a_finished_run_keeps_its_key_and_a_deleted_one_does_not(store, flow, run):
    async def handler(ctx, params):
        return params

    done = await run(handler, 1, idempotency_key="k")
    assert await flow.trigger(1, idempotency_key="k").execute(store) == done.run_id

    await flow.delete(done.run_id, store)
    anew = await flow.trigger(2, idempotency_key="k").execute(store)

    assert anew != done.run_id
    assert await flow.trigger(2, idempotency_key="k").execute(store) == anew


@pytest.mark.row("B7.11")
@pytest.mark.timeout(300)
async def test_a_thousand_concurrent_triggers_with_one_key_make_one_run(store, connect, flow):
    stores = [store] if store.config.backend == "turso" else [store, *[await connect() for _ in range(3)]]

    ids = await asyncio.gather(
        *(flow.trigger({"n": 1}, idempotency_key="once").execute(stores[i % len(stores)]) for i in range(1000))
    )

    assert len(ids) == 1000
    assert len(set(ids)) == 1
    assert len(await flow.runs(store)) == 1
    assert (await pgqrs.admin(store).queue_metrics("flow")).ready == 1


async def test_concurrent_triggers_with_one_key_and_two_inputs_make_one_run_and_conflicts(store, flow):
    found = await asyncio.gather(
        *(flow.trigger(i % 2, idempotency_key="once").execute(store) for i in range(100)), return_exceptions=True
    )

    kinds = {type(each) for each in found}
    assert kinds == {int, pgqrs.IdempotencyConflict}
    assert len({each for each in found if isinstance(each, int)}) == 1
    assert len(await flow.runs(store)) == 1


async def test_many_runs_have_a_key_each(store, flow):
    first = await flow.trigger_many([1, 2, 3], idempotency_keys=["a", "b", "c"]).execute(store)
    again = await flow.trigger_many([3, 4, 1, 4], idempotency_keys=["c", "d", "a", "d"]).execute(store)

    assert again[0] == first[2]
    assert again[2] == first[0]
    assert again[1] == again[3]
    assert again[1] not in first
    assert len(await flow.runs(store)) == 4


async def test_a_conflict_among_many_leaves_none_of_them(store, flow):
    await flow.trigger(1, idempotency_key="a").execute(store)

    for inputs, keys in (([5, 2], ["new", "a"]), ([1, 2], ["same", "same"])):
        with pytest.raises(pgqrs.IdempotencyConflict):
            await flow.trigger_many(inputs, idempotency_keys=keys).execute(store)

    assert len(await flow.runs(store)) == 1


@pytest.mark.row("B7.11")
@pytest.mark.parametrize("key", ["", "x" * 501, "a\0b", "line\nbreak", 7])
async def test_a_key_that_cannot_be_one_is_refused(store, flow, key):
    with pytest.raises(pgqrs.ConfigError, match="idempotency key"):
        await flow.trigger(1, idempotency_key=key).execute(store)


async def test_keys_that_do_not_match_the_runs_are_refused(store, flow):
    with pytest.raises(pgqrs.ConfigError, match="one for each"):
        await flow.trigger_many([1, 2], idempotency_keys=["a"]).execute(store)
    for keys in (True, "ab", 7):
        with pytest.raises(pgqrs.ConfigError, match="one key for each"):
            flow.trigger_many([1, 2], idempotency_keys=keys)


@pytest.mark.parametrize("name", ["a\0b", "", "no such\ud800", 7])
async def test_a_child_of_a_workflow_that_cannot_be_is_refused(run, name):
    async def handler(ctx, params):
        await ctx.spawn(name)

    done = await run(handler, max_attempts=1)

    assert (done.status, done.error["type"]) == ("ERROR", "ConfigError")


@pytest.mark.row("B7.12")
@pytest.mark.parametrize(
    ("options", "told"), [({"eta": 5}, "it takes priority"), ({"attributes": "c42"}, "attributes must be a dict")]
)
async def test_an_option_that_cannot_be_is_refused(store, flow, options, told):
    with pytest.raises(pgqrs.ConfigError, match=told):
        await flow.trigger(1, **options).execute(store)

    assert await flow.runs(store) == []


async def test_waiting_for_many_runs_is_refused(flow):
    with pytest.raises(pgqrs.ConfigError, match="for one run"):
        flow.trigger_many([1, 2]).wait()


@pytest.mark.row("B1.2")
async def test_a_kill_before_all_of_a_run_is_written_leaves_nothing_of_it(store, flow):
    class Killed(Exception):
        pass

    def kill(point):
        # The last statement: on PostgreSQL run and message are one statement, and come before it.
        if point == ("sql", "insert_attributes"):
            raise Killed

    with faults.injected(kill), pytest.raises(Killed):
        await flow.trigger(1, idempotency_key="k", attributes={"a": 1}).execute(store)

    assert await flow.runs(store) == []
    assert await flow.trigger(2, idempotency_key="k").execute(store)


# -- in the caller's transaction, and from SQL -----------------------------------------------------------


@pytest.mark.backends("sqlite")
async def test_a_key_counts_in_a_transaction_of_the_callers(store, flow, config):
    import sqlite3

    run_id = await flow.trigger(1, idempotency_key="k").execute(store)
    connection = sqlite3.connect(config.path, isolation_level=None)
    enlisted = pgqrs.using(connection)
    connection.execute("begin immediate")

    assert enlisted.trigger("flow", 1, idempotency_key="k") == run_id
    with pytest.raises(pgqrs.IdempotencyConflict):
        enlisted.trigger("flow", 2, idempotency_key="k")
    connection.execute("rollback")
    connection.close()


@pytest.mark.backends("postgres")
async def test_pgqrs_trigger_knows_keys_attributes_and_history(store, flow, config):
    import asyncpg

    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    sql = f'select "{config.schema}".pgqrs_trigger($1, $2, $3)'
    try:
        options = '{"idempotency_key": "k", "attributes": {"customer": "c42", "n": 7, "deep": {"x": 1}}}'
        run_id = await connection.fetchval(sql, "flow", '{"a": 1}', options)
        assert await connection.fetchval(sql, "flow", '{"a": 1}', options) == run_id
        with pytest.raises(asyncpg.RaiseError, match="another input"):
            await connection.fetchval(sql, "flow", '{"a": 2}', options)
        attributes = await connection.fetch(
            f'select name, value from "{config.schema}".pgqrs_run_attributes order by name'
        )
    finally:
        await connection.close()

    assert [tuple(row) for row in attributes] == [("customer", "c42"), ("n", "7")]
    assert await flow.trigger({"a": 1}, idempotency_key="k").execute(store) == run_id


async def test_an_option_that_is_also_a_parameter_is_not_swallowed(store):
    @pgqrs.workflow(name="ambiguous")
    async def ambiguous(ctx, n: int, priority: int = 0) -> list:
        return [n, priority]

    await store.create_workflow("ambiguous")

    with pytest.raises(pgqrs.ConfigError, match="priority"):
        ambiguous.trigger(3, priority=9)
    assert (await pgqrs.workflow("ambiguous").get_run(await ambiguous.trigger(3, 9).execute(store), store)).input == {
        "n": 3,
        "priority": 9,
    }


async def test_a_handler_sees_the_attributes_of_its_run(run):
    async def handler(ctx, params):
        return ctx.attributes

    def plain(ctx, params):
        return ctx.attributes

    for each in (handler, plain):
        assert (await run(each, attributes={"customer": "c42"})).output() == {"customer": "c42"}
        assert (await run(each)).output() == {}
