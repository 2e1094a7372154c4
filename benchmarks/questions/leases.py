"""A lease of ten: what it reads and how long it takes with 1,000 and with 1,000,000 messages ready.

Statistics are stale throughout: the tables are filled after the last ANALYZE, and autovacuum is off.
"""

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pgqrs
from benchmarks.databases import both
from pgqrs.db.queries import Query
from pgqrs.db.tables import messages

BATCH, ROUNDS = 10, 200
FILL = Query(
    "fill",
    """
insert into pgqrs_messages (queue_id, payload, priority, visible_after, enqueued_at, max_attempts)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select :queue_id, '{{}}', i % 3, {after :delay}, {now}, 3 from n
""".replace("{{}}", "[]"),
)
FILL_ARCHIVE = Query(
    "fill_archive",
    """
insert into pgqrs_archived_messages
    (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select i + 100000000, :queue_id, '[]', 0, {now}, 1, 1, {now} from n
""",
)


async def main() -> None:
    async with both() as stores:
        for name, store in stores.items():
            db = store.database
            if db.dialect.is_postgres:
                await db.execute(Query("quiet", "alter table pgqrs_messages set (autovacuum_enabled = off)"))
            small, large = await queue(store, "small", 1_000), await queue(store, "large", 1_000_000)
            if db.dialect.is_postgres:
                await buffers(store, "1 k ready", small)
                await buffers(store, "1 M ready", large)
                await db.execute(FILL_ARCHIVE, queue_id=large, count=1_000_000)
                await buffers(store, "1 M ready beside 1 M archived", large)
                later = await queue(store, "later", 0)
                await db.execute(FILL, queue_id=later, count=1_000_000, delay=86400.0)
                await db.execute(FILL, queue_id=later, count=10, delay=0.0)
                await buffers(store, "1 M scheduled, 10 ready", later)
            times: dict[int, list[float]] = {small: [], large: []}
            for _ in range(ROUNDS):
                for queue_id, seconds in times.items():
                    seconds.append(await lease_and_release(store, queue_id))
            at_small, at_large = (statistics.median(times[q]) * 1000 for q in (small, large))
            print(
                f"{name:<9} lease of {BATCH}: {at_small:.2f} ms at 1 k, {at_large:.2f} ms at 1 M ready "
                f"({at_large / at_small:.2f}x); p99 at 1 M {quantile(times[large]):.2f} ms"
            )
            if db.dialect.is_postgres:
                await buffers(store, f"1 M ready, after {2 * ROUNDS} leases and releases without vacuum", large)


async def queue(store: pgqrs.Store, name: str, count: int) -> int:
    await store.create_queue(name)
    queue_id = int(
        (await store.database.fetch(Query("id", "select queue_id from pgqrs_queues where name = :n"), n=name))[0][0]
    )
    if count:
        await store.database.execute(FILL, queue_id=queue_id, count=count, delay=-3600.0)
    return queue_id


async def lease_and_release(store: pgqrs.Store, queue_id: int) -> float:
    """Seconds for the lease alone; handing back keeps the number of ready messages."""
    started = time.perf_counter()
    leases = await messages.lease(store.database, [messages.Source(queue_id, 30.0)], worker_id=1, batch=BATCH)
    seconds = time.perf_counter() - started
    if len(leases) != BATCH:
        raise RuntimeError(f"{len(leases)} leased")
    await messages.release(store.database, [each.fence for each in leases], delay=-3600.0, count_attempt=False)
    return seconds


async def buffers(store: pgqrs.Store, what: str, queue_id: int) -> None:
    """What EXPLAIN (ANALYZE, BUFFERS) counts: for finding and locking the ten, and for the update as a whole."""
    query = messages._SQL["lease_messages"]  # noqa: SLF001 - the very text that is sent
    text = f"explain (analyze, buffers, format json) {query.postgres_text}"
    rows = await store.database.fetch(
        Query("explain", text), queue_ids=[queue_id], queues=[(queue_id, 30.0, BATCH)], batch=BATCH, worker_id=1
    )
    plan = json.loads(rows[0][0])[0]["Plan"]
    reading = next(
        node for node in nodes(plan) if node["Node Type"] == "Nested Loop" and node["Actual Rows"] == BATCH
    )
    indexes = sorted({node["Index Name"] for node in nodes(plan) if "Index Name" in node})
    print(
        f"          {what}: reads {pages(reading)} buffers to find and lock {BATCH}, "
        f"{pages(plan)} with writing them back; {', '.join(indexes)}"
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def quantile(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1000
