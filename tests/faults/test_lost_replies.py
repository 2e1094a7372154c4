"""PostgreSQL: the statement was carried out, its reply was lost; nothing is done twice and nothing idles."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import pgqrs
from pgqrs.db.drivers.postgres import driver
from pgqrs.db.queries import Query

pytestmark = pytest.mark.backends("postgres")


@pytest.fixture
async def producer(store):
    await store.create_queue("tasks")
    return await store.producer("tasks")


@pytest.fixture
async def consumer(store, producer):
    return await store.consumer("tasks")


@pytest.fixture
def lose_reply(monkeypatch):
    """Arms one loss: the named statement is carried out, and then the connection breaks."""
    armed: list[str] = []
    fetch = driver.PostgresSession.fetch

    async def losing(self, query, **params):
        rows = await fetch(self, query, **params)
        if query.name in armed:
            armed.remove(query.name)
            raise ConnectionResetError("the reply was lost")
        return rows

    monkeypatch.setattr(driver.PostgresSession, "fetch", losing)
    yield armed.append
    assert not armed, f"nobody ran {armed}: no reply was lost, so nothing was tested"


@pytest.fixture
def lose_commit(monkeypatch):
    """Arms one loss: the next transaction is committed, and then the connection breaks."""
    armed: list[int] = []
    transaction = driver.PostgresDriver._transaction

    @asynccontextmanager
    async def losing(self, connection):
        async with transaction(self, connection):
            yield
        if armed:
            armed.pop()
            raise ConnectionResetError("the reply was lost")

    monkeypatch.setattr(driver.PostgresDriver, "_transaction", losing)
    return lambda: armed.append(1)


@pytest.mark.row("B4.6")
async def test_a_lease_whose_reply_was_lost_is_found_again(producer, consumer, lose_reply):
    await producer.enqueue_many(range(3))
    [first] = await consumer.dequeue()

    lose_reply("settle_and_lease_in_bands")
    messages = await consumer.dequeue(2)

    assert [(m.payload, m.attempts) for m in messages] == [(1, 1), (2, 1)]
    assert await consumer.archive_many([first, *messages]) == [first.id, *(m.id for m in messages)]


async def test_a_lost_lease_of_the_last_attempt_is_found_too(producer, consumer, lose_reply):
    await producer.enqueue("x", max_attempts=1)

    lose_reply("settle_and_lease")

    assert [m.payload for m in await consumer.dequeue()] == ["x"]


@pytest.mark.row("B4.6")
@pytest.mark.parametrize(
    ("verb", "statement"),
    [
        ("archive", "archive_messages"),
        ("delete", "delete_messages"),
        ("release", "release_messages"),
    ],
)
async def test_a_settlement_whose_reply_was_lost_has_happened_once(
    store, producer, consumer, lose_reply, verb, statement
):
    await producer.enqueue("x")
    [message] = await consumer.dequeue()

    lose_reply(statement)
    await getattr(message, verb)()

    with pytest.raises(pgqrs.LeaseLost):
        await message.archive()
    metrics = await pgqrs.admin(store).queue_metrics("tasks")
    assert (metrics.archived, metrics.ready) == {"archive": (1, 0), "delete": (0, 0), "release": (0, 1)}[verb]


async def test_an_extension_whose_reply_was_lost_holds(producer, consumer, clock, lose_reply):
    await producer.enqueue("x")
    [message] = await consumer.dequeue(lease_seconds=10)

    lose_reply("extend_leases")
    await message.extend(100)

    clock.advance(99)
    assert await consumer.dequeue() == []


async def test_a_stale_archive_whose_reply_was_lost_is_still_stale(store, producer, consumer, clock, lose_reply):
    await producer.enqueue("x")
    [stale] = await consumer.dequeue(lease_seconds=10)
    clock.advance(10)
    other = await store.consumer("tasks")
    [held] = await other.dequeue()

    lose_reply("archive_messages")
    with pytest.raises(pgqrs.LeaseLost):
        await stale.archive()
    await held.archive()


@pytest.mark.row("B4.6")
async def test_an_enqueue_whose_reply_was_lost_is_reported_as_unknown_and_not_repeated(store, producer, lose_reply):
    lose_reply("enqueue_messages")

    with pytest.raises(pgqrs.ConnectionFailed, match="may or may not") as caught:
        await producer.enqueue("x")

    assert caught.value.ambiguous
    assert (await pgqrs.admin(store).queue_metrics("tasks")).ready == 1


@pytest.mark.row("B4.3")
async def test_killed_backends_are_replaced_without_the_caller_noticing(store, producer, consumer):
    import asyncpg

    admin = await asyncpg.connect(store.config.dsn)
    for n in range(5):
        await producer.enqueue(n)
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'pgqrs' and state = 'idle' and pid <> pg_backend_pid()"
            " and query like '%' || $1 || '%'",
            store.config.schema,
        )
        [message] = await consumer.dequeue()
        assert message.payload == n
        await message.archive()
    await admin.close()


@pytest.mark.row("B4.4")
async def test_a_listener_whose_connection_is_killed_listens_again(connect):
    import asyncpg

    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_queue("tasks")
    consumer, producer = await store.consumer("tasks"), await store.producer("tasks")
    waiting = asyncio.create_task(consumer.dequeue(wait_seconds=60))
    admin = await asyncpg.connect(store.config.dsn)
    listening = f"""select pid from pg_stat_activity where application_name = 'pgqrs listen'
        and query like '%pgqrs_{store.config.schema}%'"""
    while not (pids := await admin.fetch(listening)):
        await asyncio.sleep(0.01)

    await admin.execute("select pg_terminate_backend($1)", pids[0][0])
    async with asyncio.timeout(10):
        while not (again := await admin.fetch(listening)) or again[0] == pids[0]:
            await asyncio.sleep(0.01)
    await producer.enqueue("x")

    assert [m.payload for m in await asyncio.wait_for(waiting, 5)] == ["x"]
    await admin.close()


@pytest.mark.row("B4.14")
async def test_a_deadlock_is_tried_again(store, monkeypatch):
    import asyncpg

    calls = []
    fetch = driver.PostgresSession.fetch

    async def deadlocking(self, query, **params):
        calls.append(query.name)
        if len(calls) == 1:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await fetch(self, query, **params)

    monkeypatch.setattr(driver.PostgresSession, "fetch", deadlocking)
    await store.create_queue("tasks")

    assert "tasks" in await pgqrs.admin(store).queues()


async def test_a_database_that_stays_away_is_reported_within_the_time_given(monkeypatch, config, connect):
    store = await connect()
    await store.create_queue("tasks")
    object.__setattr__(store.database._config, "retry_seconds", 0.3)

    async def broken(self, query, **params):
        raise ConnectionRefusedError("nobody there")

    with monkeypatch.context() as patch, pytest.raises(pgqrs.ConnectionFailed, match="nobody there"):
        patch.setattr(driver.PostgresSession, "fetch", broken)
        await pgqrs.admin(store).queues()


async def test_a_missing_table_is_no_raw_error(store, config):
    import asyncpg

    await store.create_queue("tasks")
    producer = await store.producer("tasks")
    connection = await asyncpg.connect(config.dsn)
    await connection.execute(f'alter table "{config.schema}".pgqrs_messages rename to elsewhere')

    with pytest.raises(pgqrs.SchemaNotInstalled, match="pgqrs schema verify"):
        await producer.enqueue(1)
    await connection.execute(f'alter table "{config.schema}".elsewhere rename to pgqrs_messages')
    await connection.close()


async def test_two_leases_at_once_that_lose_their_replies_hand_nothing_out_twice(producer, consumer, lose_reply):
    await producer.enqueue_many(range(8))

    lose_reply("settle_and_lease")
    lose_reply("settle_and_lease")
    one, other = await asyncio.gather(consumer.dequeue(2), consumer.dequeue(2))

    assert len({m.id for m in one + other}) == len(one) + len(other) == 4


@pytest.mark.row("B2.17")
async def test_a_forked_child_that_closes_the_store_leaves_the_parent_alone(store, producer):
    import os

    child = os.fork()
    if child == 0:
        try:
            asyncio._set_running_loop(None)
            asyncio.new_event_loop().run_until_complete(store.close())
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert await asyncio.wait_for(producer.enqueue("still here"), 5)


# -- runs ------------------------------------------------------------------------------------------------


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.mark.row("B4.6")
async def test_a_trigger_with_a_key_finds_what_its_first_try_made(store, flow, lose_commit):
    lose_commit()
    run_id = await flow.trigger(1, idempotency_key="k").execute(store)

    assert [each.run_id for each in await flow.runs(store)] == [run_id]


async def test_a_trigger_without_a_key_is_reported_as_unknown_and_not_repeated(store, flow, lose_reply):
    lose_reply("trigger_runs")
    with pytest.raises(pgqrs.ConnectionFailed) as caught:
        await flow.trigger(1).execute(store)

    assert caught.value.ambiguous
    assert len(await flow.runs(store)) == 1


async def test_what_a_step_emits_and_tells_is_written_once(store, flow, lose_commit, clock):
    async def emit(ctx):
        lose_commit()
        await ctx.emit("order.shipped", {"n": 1})

    async def fail():
        lose_commit()
        raise ValueError("no")

    async def handler(ctx, params):
        await ctx.step("emit", emit, ctx)
        try:
            await ctx.step("fail", fail)
        except ValueError:
            lose_commit()
            return "done"

    run_id = await flow.trigger().execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await flow.get_run(run_id, store)).status == "SUCCESS"
    assert await rows_of(store, "select event_type from pgqrs_outbox_events") == [("order.shipped",)]
    assert await rows_of(store, "select event_type from pgqrs_workflow_events order by event_id") == [
        ("created",),
        ("step_failed",),
        ("succeeded",),
    ]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "restart", "delete"])
async def test_what_a_person_does_is_told_once(store, flow, lose_commit, verb):
    run_id = await flow.trigger().execute(store)
    if verb == "resume":
        await flow.pause(run_id, store)
    if verb == "restart":
        await flow.cancel(run_id, store)
    before = len(await rows_of(store, "select event_id from pgqrs_workflow_events"))

    lose_commit()
    await getattr(flow, verb)(run_id, store)

    assert len(await rows_of(store, "select event_id from pgqrs_workflow_events")) == before + 1


async def rows_of(store, sql):
    return [tuple(row) for row in await store.database.fetch(Query("look", sql))]
