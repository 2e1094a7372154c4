"""A lease leaves its sync to the next commit: what would be lost without it is fenced, or its holder lost with it."""

import asyncio

import asyncpg
import pytest

import pgqrs
from pgqrs.db.drivers.sqlite_file import SQLiteFile

on_a_file = pytest.mark.backends("sqlite")
flow = pgqrs.workflow("flow")


@pytest.fixture
def told(monkeypatch):
    """What every connection to the file is told from now on."""
    statements = []
    connect = SQLiteFile.connect

    def traced(file):
        connection = connect(file)
        connection.set_trace_callback(lambda text: statements.append(" ".join(text.split())))
        return connection

    monkeypatch.setattr(SQLiteFile, "connect", traced)
    return statements


def syncs(statements):
    """For each commit, whether it was synced."""
    found, full = [], True
    for text in statements:
        if text.startswith("pragma synchronous = "):
            full = text.endswith("full")
        elif text == "commit":
            found.append(full)
    assert full
    return found


@on_a_file
async def test_a_lease_is_not_synced_and_all_else_is(told, connect):
    store = await connect()
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    told.clear()

    await producer.enqueue_many([1, 2])
    assert syncs(told) == [True]
    told.clear()
    [message] = await consumer.dequeue(1)
    assert syncs(told) == [False]
    told.clear()
    await message.archive()
    assert syncs(told) == [True]


@on_a_file
async def test_a_claim_is_not_synced_and_what_comes_of_it_is(told, connect):
    store = await connect()
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(lambda ctx, n: n).create(store)
    run_id = await flow.trigger(7).execute(store)
    told.clear()

    await worker.run_until_idle()
    seen = syncs(told)
    await worker.close()

    # It is claimed, it ends, and a claim finds no other.
    assert seen == [False, True, False]
    assert (await flow.get_run(run_id, store)).output() == 7


@on_a_file
async def test_a_lease_beside_something_else_is_synced_with_it(told, connect):
    """Whoever waits behind it must not be told that something is durable which is not."""
    store = await connect()
    await store.create_queue("tasks")
    producer, consumer = await store.producer("tasks"), await store.consumer("tasks")
    await producer.enqueue_many(range(100))
    told.clear()

    async def enqueue():
        for n in range(50):
            await producer.enqueue(n)

    await asyncio.gather(enqueue(), *(consumer.dequeue(1) for _ in range(50)))

    full, writes = True, 0
    for text in told:
        if text.startswith("pragma synchronous = "):
            full = text.endswith("full")
        elif text.lower().startswith("insert into pgqrs_messages"):
            writes += 1
            assert full, "a message that is acknowledged without a sync"
    assert writes


# At its commit each transaction notes what it did, and whether it is going to wait for the disk.
NOTING = """
create table "{schema}".notes (number bigint generated always as identity, what text, synced text);
create function "{schema}".note() returns trigger language plpgsql as $$
begin
    insert into "{schema}".notes (what, synced)
    values (tg_op || ' ' || tg_table_name, current_setting('synchronous_commit'));
    return null;
end $$;
"""
NOTED = """
create constraint trigger note after insert or update or delete on "{schema}".{table}
    deferrable initially deferred for each row execute function "{schema}".note();
"""


@pytest.mark.backends("postgres")
async def test_on_a_server_only_the_claim_is_not_waited_for(connect, config):
    async def handler(ctx):
        await ctx.step("only", step)

    async def step():
        pass

    store = await connect(clock=pgqrs.DatabaseClock())
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await flow.trigger(None).execute(store)
    admin = await asyncpg.connect(config.dsn)
    await admin.execute(NOTING.format(schema=config.schema))
    for table in ("pgqrs_messages", "pgqrs_workflow_runs", "pgqrs_workflow_steps"):
        await admin.execute(NOTED.format(schema=config.schema, table=table))

    await worker.run_until_idle()
    await worker.close()
    rows = await admin.fetch(f'select what, synced from "{config.schema}".notes order by number')
    await admin.close()

    assert sorted(map(tuple, rows[:2])) == [("UPDATE pgqrs_messages", "off"), ("UPDATE pgqrs_workflow_runs", "off")]
    rest = [tuple(row) for row in rows[2:]]
    assert sorted({what for what, _ in rest}) == [
        "DELETE pgqrs_messages",
        "INSERT pgqrs_workflow_steps",
        "UPDATE pgqrs_workflow_runs",
    ]
    assert {synced for _, synced in rest} == {"on"}
