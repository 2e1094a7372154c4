"""Arguments: stored by name, checked at the trigger, bound alike whichever way a run is triggered."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import pgqrs
from pgqrs.db.database import Kind, store_call
from pgqrs.db.queries import Query

READ = Query("read_input", "select {text input} from pgqrs_workflow_runs where run_id = :run_id")
WRITE = Query("write_input", "update pgqrs_workflow_runs set input = {as_json :text} where run_id = :run_id")


@dataclass
class Parcel:
    sku: str
    count: int = 1


@pytest.fixture
async def order(store):
    await store.create_workflow("order")
    return pgqrs.workflow("order")


@pytest.fixture
async def serve(store, order):
    """Has a handler take what is due, and what comes later."""
    workers = []

    async def work(handler):
        worker = await pgqrs.consumer("w", 0, "order").handler(handler).create(store)
        workers.append(worker)
        await worker.run_until_idle()
        return worker

    yield work
    for worker in workers:
        await worker.close()


@store_call(Kind.READ)
async def read(db, run_id):
    return await db.fetch(READ, run_id=run_id)


@store_call(Kind.UNIT)
async def write(db, run_id, text):
    await db.execute(WRITE, run_id=run_id, text=text)


async def stored(store, run_id):
    """What is in the column."""
    [[text]] = await read(store.database, run_id)
    return json.loads(text)


async def store_as(store, run_id, value):
    """As an earlier version, or another program, would."""
    await write(store.database, run_id, json.dumps(value))


# -- how they are stored -------------------------------------------------------------------------------------


async def test_arguments_are_stored_by_name_also_when_there_is_one(store):
    @pgqrs.workflow
    async def pay(ctx, amount: int): ...

    @pgqrs.workflow
    async def send(ctx, sku: str, count: int = 1): ...

    for each in (pay, send):
        await store.create_workflow(each.name)
    one = await pay.trigger(5).execute(store)
    two = await send.trigger("A1").execute(store)
    three = await send.trigger(count=2, sku="A1").execute(store)

    assert await stored(store, one) == {"$args": "value", "amount": 5}
    assert await stored(store, two) == {"$args": "names", "sku": "A1"}
    assert await stored(store, three) == {"$args": "names", "sku": "A1", "count": 2}
    assert (await pay.get_run(one, store)).input == 5
    assert (await send.get_run(three, store)).input == {"sku": "A1", "count": 2}


async def test_one_value_gets_its_name_once_a_worker_has_told_what_the_workflow_takes(store, order, serve):
    got = []

    async def handler(ctx, parcel):
        got.append(parcel)

    before = await order.trigger({"sku": "A1"}).execute(store)
    worker = await serve(handler)
    after = await order.trigger({"sku": "A1"}).execute(store)
    await worker.run_until_idle()

    assert await stored(store, before) == {"sku": "A1"}
    assert await stored(store, after) == {"$args": "value", "parcel": {"sku": "A1"}}
    assert got == [{"sku": "A1"}] * 2
    assert [run.input for run in await order.runs(store)] == [{"sku": "A1"}] * 2


async def test_a_dict_that_happens_to_have_the_parameters_name_is_the_argument_itself(store, order, serve):
    got = []

    async def handler(ctx, params: dict):
        got.append(params)

    await order.trigger({"params": {"a": 1}}).execute(store)
    worker = await serve(handler)
    for value in ({"params": {"a": 1}}, {"params": 1}, {"$args": "names", "params": 1}, {"parmas": 1}):
        await order.trigger(value).execute(store)
    await worker.run_until_idle()

    assert got == [
        {"params": {"a": 1}},
        {"params": {"a": 1}},
        {"params": 1},
        {"$args": "names", "params": 1},
        {"parmas": 1},
    ]


async def test_values_keep_their_types_under_a_name(store, order, serve):
    got = []

    async def handler(ctx, parcel: Parcel, at: datetime, sizes: tuple, *, wait: timedelta = timedelta(0)):
        got.append((parcel, at, sizes, wait))

    at = datetime(2030, 1, 31, 12, tzinfo=UTC)
    sent = pgqrs.workflow(name="order")(handler)
    await sent.trigger(Parcel("A1", 2), at, (1, (2, 3)), wait=timedelta(seconds=5)).execute(store)
    await serve(handler)

    assert got == [(Parcel("A1", 2), at, (1, (2, 3)), timedelta(seconds=5))]


# -- code that changes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "got"),
    [
        (5, (5, "EUR")),
        ({"$args": "value", "amount": 5}, (5, "EUR")),
        ({"amount": 5}, (5, "EUR")),
        ({"amount": 5, "currency": "USD"}, (5, "USD")),
        ({"$args": "names", "amount": 5, "gone": 1}, (5, "EUR")),
    ],
    ids=["one argument, bare", "one argument, by name", "an object", "several arguments", "one more than now"],
)
async def test_a_parameter_with_a_default_may_be_added_while_runs_wait(store, order, serve, written, got):
    seen = []

    async def handler(ctx, amount: int, currency: str = "EUR"):
        seen.append((amount, currency))

    await store_as(store, await order.trigger(0).execute(store), written)
    await serve(handler)

    assert seen == [got]


async def test_parameters_may_change_places_while_runs_wait(store, order, serve):
    seen = []

    @pgqrs.workflow(name="order")
    async def before(ctx, amount=1, currency="EUR"): ...

    async def after(ctx, currency="EUR", amount=1):
        seen.append((amount, currency))

    await before.trigger(5).execute(store)
    await before.trigger(6, "USD").execute(store)
    await serve(after)

    assert sorted(seen) == [(5, "EUR"), (6, "USD")]


async def test_a_dict_stored_bare_stays_the_argument_when_a_parameter_is_added(store, order, serve):
    seen = []

    async def handler(ctx, params: dict, retries: int = 3):
        seen.append((params, retries))

    await store_as(store, await order.trigger(0).execute(store), {"retries": 9, "bucket": "b"})
    await serve(handler)

    assert seen == [({"retries": 9, "bucket": "b"}, 3)]


async def test_a_key_finds_its_run_although_that_is_stored_in_the_older_form(store, order):
    @pgqrs.workflow(name="order")
    async def code(ctx, amount: int): ...

    first = await order.trigger(5, idempotency_key="k").execute(store)

    assert await code.trigger(5, idempotency_key="k").execute(store) == first
    with pytest.raises(pgqrs.IdempotencyConflict):
        await code.trigger(6, idempotency_key="k").execute(store)


async def test_a_run_that_waits_for_code_with_a_new_parameter_can_be_restarted_when_that_has_a_default(
    store, order, serve, clock
):
    async def before(ctx, amount: int):
        await ctx.sleep(60)
        return amount

    async def without_default(ctx, amount: int, currency: str):
        await ctx.sleep(60)
        return [amount, currency]

    async def with_default(ctx, amount: int, currency: str = "EUR"):
        await ctx.sleep(60)
        return [amount, currency]

    run_id = await order.trigger({"amount": 5}, max_attempts=1).execute(store)
    await (await serve(before)).close()
    clock.advance(60)
    await (await serve(without_default)).close()
    failed = await order.get_run(run_id, store)
    await order.restart(run_id, store)
    await serve(with_default)
    done = await order.get_run(run_id, store)

    assert (failed.status, "'currency' is missing" in failed.last_error) == ("ERROR", True), failed.last_error
    assert (done.status, done.output()) == ("SUCCESS", [5, "EUR"])


# -- what does not fit is told at the trigger ----------------------------------------------------------------


BAD = [
    ({"amount": "lots"}, "amount", "'amount' must be an int, got 'lots'"),
    ({"amount": 1, "curency": "EUR"}, "curency", "no parameter 'curency'.*did you mean 'currency'"),
    ({"amount": 1, "colour": "red"}, "colour", "no parameter 'colour'; it takes amount, currency"),
    ({"currency": "EUR"}, "amount", "'amount' is missing"),
    ({"amuont": 1}, "amuont", "no parameter 'amuont'.*did you mean 'amount'"),
    ("lots", "amount", "'amount' must be an int, got 'lots'"),
    (None, "amount", "'amount' is missing"),
]


async def handler_of_two(ctx, amount: int, currency: str = "EUR"):
    return [amount, currency]


@pytest.mark.parametrize(("params", "parameter", "told"), BAD, ids=[str(each[0]) for each in BAD])
async def test_what_does_not_fit_is_refused_by_name(store, order, serve, params, parameter, told):
    await serve(handler_of_two)
    decorated = pgqrs.workflow(name="order")(handler_of_two)

    for noun in (order, decorated):
        with pytest.raises(pgqrs.InvalidArguments, match=f"^(item 0: )?workflow 'order': .*{told}") as caught:
            # The noun of the code takes arguments; one value for each run it takes in trigger_many.
            await (noun.trigger(params) if noun is order else noun.trigger_many([params])).execute(store)
        assert (caught.value.workflow, caught.value.parameter) == ("order", parameter)
    with pytest.raises(pgqrs.InvalidArguments, match=told):
        await pgqrs.schedules(store).create("daily", "order", cron="@daily", params=params)
    assert await order.runs(store) == []


async def test_of_many_the_item_at_fault_is_named(store, order, serve):
    await serve(handler_of_two)

    with pytest.raises(pgqrs.InvalidArguments, match=r"item 2: workflow 'order': 'amount' must be an int") as caught:
        await order.trigger_many([1, {"amount": 2}, {"amount": "x"}, {}]).execute(store)
    with pytest.raises(pgqrs.ConfigError, match=r"item 1: idempotency key '' is not allowed") as keyed:
        await order.trigger_many([1, 2], idempotency_keys=["k", ""]).execute(store)
    with pytest.raises(
        pgqrs.SerializationError, match=r"item 1: the input of workflow 'order': \$\.amount\[0\]: "
    ) as unstorable:
        await order.trigger_many([1, {"amount": [object()]}]).execute(store)

    assert (caught.value.item, keyed.value.item, unstorable.value.item) == (2, 1, 1)
    assert (unstorable.value.path, caught.value.parameter) == ("$.amount[0]", "amount")
    assert await order.runs(store) == []


async def test_of_many_messages_the_one_at_fault_is_named(store):
    await store.create_queue("tasks")
    producer = await store.producer("tasks")

    with pytest.raises(pgqrs.SerializationError, match=r"^item 1: \$\.a\[0\]: ") as caught:
        await producer.enqueue_many([1, {"a": [float("nan")]}])
    with pytest.raises(pgqrs.SerializationError, match=r"^\$\.a: ") as alone:
        await producer.enqueue({"a": float("nan")})

    assert (caught.value.item, caught.value.path, alone.value.item) == (1, "$.a[0]", None)


async def test_the_code_refuses_arguments_as_a_call_would(store, order):
    @pgqrs.workflow(name="order")
    async def code(ctx, amount: int, *, currency: str = "EUR"): ...

    for args, kwargs, told in [
        ((), {}, "missing a required argument: 'amount'"),
        ((1, "EUR"), {}, "too many positional arguments"),
        ((1,), {"curency": "x"}, "there is no parameter or option 'curency'; .*; did you mean 'currency'"),
        (
            (),
            {"nope": 1},
            "no parameter or option 'nope'; the workflow takes amount, currency; trigger takes priority, ",
        ),
        ((1,), {"prioriy": 3}, "no parameter or option 'prioriy'; .* idempotency_key, require_worker; .* 'priority'"),
        (("lots",), {}, "'amount' must be an int, got 'lots'"),
        ((1,), {"currency": 5}, "'currency' must be a str, got 5"),
    ]:
        with pytest.raises(pgqrs.ConfigError, match=told):
            code.trigger(*args, **kwargs)


async def test_a_run_whose_stored_input_does_not_fit_says_so(store, order, serve):
    run_id = await order.trigger("lots", max_attempts=1).execute(store)
    await serve(handler_of_two)

    run = await order.get_run(run_id, store)
    assert (run.status, run.last_error) == (
        "ERROR",
        "InvalidArguments: workflow 'order': 'amount' must be an int, got 'lots'",
    )


async def test_a_child_is_checked_and_named_too(store, order, serve):
    told = []

    async def parent(ctx):
        try:
            await ctx.spawn("order", {"amount": "lots"})
        except pgqrs.InvalidArguments as error:
            told.append(str(error))
        child = await ctx.spawn("order", {"amount": 3})
        return await child.result()

    worker = await serve(handler_of_two)
    await store.create_workflow("parent")
    parents = await pgqrs.consumer("p", 0, "parent").handler(parent).create(store)
    run_id = await pgqrs.workflow("parent").trigger().execute(store)
    for each in (parents, worker, parents):
        await each.run_until_idle()
    await parents.close()

    [child] = await order.runs(store)
    assert (await pgqrs.workflow("parent").get_run(run_id, store)).output() == [3, "EUR"]
    assert await stored(store, child.run_id) == {"$args": "names", "amount": 3}
    # In the first pass and in the replay.
    assert told == ["workflow 'order': 'amount' must be an int, got 'lots'"] * 2


async def test_a_decorated_schedule_is_checked_when_it_is_declared():
    with pytest.raises(pgqrs.InvalidArguments, match="'kind' must be a str, got 5"):

        @pgqrs.workflow(schedule={"cron": "@daily", "params": {"kind": 5}})
        async def report(ctx, kind: str, pages: int = 1): ...

    @pgqrs.workflow(name="fine", schedule={"cron": "@daily", "params": "all"})
    async def fine(ctx, kind: str, pages: int = 1): ...


async def test_a_scheduled_run_is_bound_like_any_other(store, order, serve):
    got = []

    async def handler(ctx, amount: int, currency: str = "EUR"):
        got.append((amount, currency))

    schedules = pgqrs.schedules(store)
    await schedules.create("early", "order", cron="@daily", params={"amount": 1})
    worker = await serve(handler)
    await schedules.create("late", "order", cron="@daily", params={"amount": 2, "currency": "USD"})
    for name in ("early", "late"):
        await schedules.trigger(name)
    await worker.run_until_idle()

    assert got == [(1, "EUR"), (2, "USD")]
    assert (await schedules.get("late")).params == {"amount": 2, "currency": "USD"}


# -- other ways in -------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "postgres")
async def test_a_trigger_in_the_callers_transaction_is_checked_and_bound_the_same(store, config, order, serve):
    got = []

    async def handler(ctx, amount: int, currency: str = "EUR"):
        got.append((amount, currency))

    worker = await serve(handler)
    if config.backend == "sqlite":
        with closing(sqlite3.connect(config.path)) as connection:
            pgqrs.using(connection).trigger("order", {"amount": 3})
            with pytest.raises(pgqrs.InvalidArguments, match="'amount' must be an int, got 'x'"):
                pgqrs.using(connection).trigger("order", {"amount": "x"})
            connection.commit()
    else:
        connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
        mine = pgqrs.using(connection, schema=config.schema)
        async with connection.transaction():
            await mine.trigger("order", {"amount": 3})
            with pytest.raises(pgqrs.InvalidArguments, match="'amount' must be an int, got 'x'"):
                await mine.trigger("order", {"amount": "x"})
        await connection.close()
    await worker.run_until_idle()

    assert got == [(3, "EUR")]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("5", (5, "EUR")),
        ('{"amount": 5}', (5, "EUR")),
        ('{"amount": 5, "currency": "USD"}', (5, "USD")),
        ('{"$args": "names", "currency": "USD", "amount": 5}', (5, "USD")),
    ],
)
async def test_a_run_triggered_in_sql_is_bound_the_same(store, config, order, serve, text, bound):
    got = []

    async def handler(ctx, amount: int, currency: str = "EUR"):
        got.append((amount, currency))

    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)
    await connection.execute(f'set search_path to "{config.schema}"')
    await connection.fetchval("select pgqrs_trigger('order', $1::text::json, '{}')", text)
    await connection.close()
    await serve(handler)

    assert got == [bound]


async def test_a_dead_letter_tells_the_input_without_our_mark(store, order, serve):
    await store.create_workflow("rescue")
    await store.create_workflow("order", dead_letter="rescue")

    async def fails(ctx, amount: int, currency: str = "EUR"):
        raise pgqrs.PermanentError("no such card")

    worker = await serve(fails)
    await order.trigger({"amount": 5}).execute(store)
    await worker.run_until_idle()

    [letter] = await pgqrs.workflow("rescue").runs(store)
    assert letter.input["input"] == {"amount": 5}
