"""Messages: enqueued, leased, archived; every write of a holder fenced by its lease token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from operator import itemgetter
from typing import Any, NamedTuple

from pgqrs.clock import EPOCH
from pgqrs.db.database import WHOLE, Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.readable import most_behind
from pgqrs.types import DeadLetter

_SQL = load(__package__, "messages")
# Where a range of priorities begins that nothing has been read of.
BEFORE_ALL = EPOCH


class NewMessage(NamedTuple):
    """What is to be enqueued; `run_at` wins over `delay`."""

    payload: str
    priority: int
    run_at: datetime | None
    delay: float
    max_attempts: int


class Lease(NamedTuple):
    """A message in the hands of one worker, until `visible_after`.

    A tuple, because it is made once per message: a frozen dataclass takes five times as long.
    """

    message_id: int
    queue_id: int
    payload: str
    run_id: int | None
    priority: int
    visible_after: datetime
    enqueued_at: datetime
    attempts: int
    max_attempts: int
    lease_token: int
    # Whose lease ran out before this one.
    taken_from: int | None = None
    # Since when it had been visible (PostgreSQL).
    due_at: datetime | None = None
    # For how many seconds it had been visible (SQLite, Turso).
    waited: float | None = None

    @property
    def fence(self) -> Fence:
        return (self.message_id, self.lease_token)


_PRIORITY = itemgetter(Lease._fields.index("priority"))
_AGE = itemgetter(Lease._fields.index("due_at"), Lease._fields.index("message_id"))

# A message and the token under which the caller holds it.
Fence = tuple[int, int]


@store_call(Kind.STATEMENT)
async def enqueue(db: Database, queue_id: int, messages: Sequence[NewMessage]) -> list[int]:
    """The new ids in the order given; empty when there is no such queue."""
    rows = await db.fetch(
        _SQL["enqueue_messages"],
        queue_id=queue_id,
        given=messages,
    )
    # Ids grow in the order of insertion; the order in which rows are returned is not promised.
    return sorted(row[0] for row in rows)


@dataclass(frozen=True, slots=True)
class Source:
    """A queue to lease from: for how long, and how many of it at most."""

    queue_id: int
    lease_seconds: float
    most: int = 2**31 - 1


@store_call(Kind.LEASE, idempotent=True)
async def lease(
    db: Database,
    queues: Sequence[Source],
    *,
    worker_id: int,
    batch: int,
    known: Collection[int] = (),
) -> list[Lease]:
    """Up to `batch` messages by priority, then age, now held by the worker.

    When a queue's `most` cuts it short there may be fewer than there could be: the next lease, without that queue,
    gives the others.

    `known` are the messages that the worker holds already: when the reply of a first try was lost, whatever else is
    leased by this worker is what that try took.
    """
    queue_ids = [source.queue_id for source in queues]
    if db.retried:
        found = await db.fetch(_SQL["find_leases"], queues=_listed(queue_ids), worker_id=worker_id)
        lost = [Lease(*row) for row in found if row[0] not in known]
        if lost:
            return lost
    if db.dialect.is_postgres:
        limited = any(source.most < batch for source in queues)
        rows = await db.fetch(
            _SQL["lease_limited_messages" if limited else "lease_messages"],
            queue_ids=queue_ids,
            queues=[(source.queue_id, source.lease_seconds, source.most) for source in queues],
            worker_id=worker_id,
            batch=batch,
        )
        return _in_order(rows)
    # In the writer's thread two statements cost no more than one, and the order of the first is known.
    picked = _within_limits(await db.fetch(_SQL["pick_messages"], queues=_listed(queue_ids), batch=batch), queues)
    if not picked:
        return []
    taken = await db.fetch(
        _SQL["take_messages"],
        queues=[(source.queue_id, source.lease_seconds) for source in queues],
        ids=[row[0] for row in picked],
        worker_id=worker_id,
    )
    by_id = {row[0]: row for row in taken}
    return [Lease._make((*by_id[id_], leased_by, None, waited)) for id_, _, leased_by, waited in picked]


def _in_order(rows: list[Row]) -> list[Lease]:
    """By priority, then age; the order in which an update returns its rows is not promised."""
    rows.sort(key=_AGE)
    rows.sort(key=_PRIORITY, reverse=True)
    return list(starmap(Lease, rows))


def _within_limits(picked: Sequence[Row], queues: Sequence[Source]) -> list[Row]:
    left = {source.queue_id: source.most for source in queues}
    allowed = []
    for row in picked:
        if left[row[1]] > 0:
            left[row[1]] -= 1
            allowed.append(row)
    return allowed


class PriorityRange(NamedTuple):
    """Priorities to look at, and since when what is there has been visible; of several the highest in use is read."""

    lowest: int
    highest: int
    since: datetime


class Turn(NamedTuple):
    """What came of `settle_and_lease`: the new leases, and how many of the done were not this worker's any more."""

    leases: list[Lease]
    lost: int


def _turning(_db: Database, _source: Source, *, done: Sequence[Fence] = (), **_named: Any) -> Kind:
    return Kind.STATEMENT if done else Kind.LEASE


@store_call(_turning, idempotent=True)
async def settle_and_lease(
    db: Database,
    source: Source,
    *,
    worker_id: int,
    batch: int,
    done: Sequence[Fence] = (),
    keep: bool = True,
    known: Collection[int] = (),
    bands: Sequence[PriorityRange] = (),
) -> Turn:
    """Archives what is done (deletes it unless `keep`), then leases up to `batch` more, both in one go.

    `known` as for `lease`; it may hold what is done. With `bands` only those ranges are read (PostgreSQL).
    """
    if not db.dialect.is_postgres or db.retried or not batch:
        settled = await (archive if keep else delete)(db, done) if done else ()
        leases = await lease(db, [source], worker_id=worker_id, batch=batch, known=known) if batch else []
        return Turn(leases, len(done) - len(settled))
    rows = await db.fetch(
        _SQL["settle_and_lease_in_bands" if bands else "settle_and_lease"],
        bands=bands,
        queue_id=source.queue_id,
        lease_seconds=source.lease_seconds,
        worker_id=worker_id,
        batch=batch,
        done=done,
        keep=keep,
    )
    return Turn(_in_order(rows[:-1]), len(done) - rows[-1][1])


@store_call(Kind.READ, idempotent=True)
async def next_due(db: Database, queue_ids: Sequence[int]) -> float | None:
    """Seconds until a message becomes visible (negative: it is); None when none is waiting."""
    seconds: float | None = (await db.fetch(_SQL["next_due"], queues=_listed(queue_ids)))[0][0]
    return seconds


@store_call(Kind.READ, idempotent=True)
async def is_visible(db: Database, run_id: int) -> bool:
    """Has the time of this run's message come?"""
    return bool((await db.fetch(_SQL["is_visible"], run_id=run_id))[0][0])


@store_call(Kind.STATEMENT, idempotent=True)
async def archive(db: Database, fences: Sequence[Fence]) -> set[int]:
    """The ids that were moved to the archive; the others are somebody else's by now, or gone."""
    if db.dialect.is_postgres:
        done = _ids(await db.fetch(_SQL["archive_messages"], given=fences))
    else:
        done = _ids(await db.fetch(_SQL["copy_to_archive"], given=fences))
        await db.execute(_SQL["remove_messages"], ids=sorted(done))
    if db.retried:
        done |= _ids(await db.fetch(_SQL["find_archived"], given=_without(fences, done)))
    return done


@store_call(Kind.STATEMENT, idempotent=True)
async def delete(db: Database, fences: Sequence[Fence]) -> set[int]:
    """The ids that were deleted."""
    done = _ids(await db.fetch(_SQL["delete_messages"], given=fences))
    if db.retried:
        # A deleted row cannot say who deleted it; that it is gone is what was asked for.
        rest = [message_id for message_id, _ in _without(fences, done)]
        done |= set(rest) - _ids(await db.fetch(_SQL["find_messages"], ids=rest))
    return done


@store_call(Kind.STATEMENT, idempotent=True)
async def extend(db: Database, fences: Sequence[Fence], *, seconds: float) -> set[int]:
    """The ids whose lease now ends `seconds` from now."""
    given = [(*fence, seconds) for fence in fences]
    return _ids(await db.fetch(_SQL["extend_leases"], given=given))


@store_call(Kind.STATEMENT, idempotent=True)
async def renew(db: Database, given: Sequence[tuple[int, int, float]]) -> tuple[set[int], set[int]]:
    """Of messages with their tokens and seconds: those whose lease was extended, and those that are locked.

    A locked one is still leased under its token. Heartbeats call it: they renew all leases of a process together, and
    one row that is locked for long must not cost the others.
    """
    renewed = _ids(await db.fetch(_SQL["renew_leases"], given=given))
    rest = [each[:2] for each in given if each[0] not in renewed]
    return renewed, await still_held(db, rest) if rest else set()


async def still_held(db: Database, fences: Sequence[Fence]) -> set[int]:
    """The ids that are still leased under their tokens, locked or not."""
    return _ids(await db.fetch(_SQL["find_held"], given=fences))


@store_call(Kind.STATEMENT, idempotent=True)
async def release(db: Database, fences: Sequence[Fence], *, delay: float, count_attempt: bool) -> set[int]:
    """The ids that were handed back, visible again after `delay` seconds."""
    give_back = 0 if count_attempt else 1
    done = _ids(await db.fetch(_SQL["release_messages"], given=fences, delay=delay, give_back=give_back))
    if db.retried:
        done |= _ids(await db.fetch(_SQL["find_released"], given=_without(fences, done)))
    return done


class Return(NamedTuple):
    """A message on its way back: visible again after `seconds`, with so many of its attempts used up."""

    message_id: int
    lease_token: int
    seconds: float
    attempts: int


@store_call(Kind.STATEMENT, idempotent=True)
async def hand_back(db: Database, returns: Sequence[Return]) -> set[int]:
    """The ids that were handed back, each with its own delay; with all attempts used up it is a dead letter."""
    done = _ids(await db.fetch(_SQL["hand_back"], given=returns))
    if db.retried:
        fences = [(each.message_id, each.lease_token) for each in returns]
        done |= _ids(await db.fetch(_SQL["find_released"], given=_without(fences, done)))
    return done


@store_call(Kind.STATEMENT, idempotent=True)
async def release_worker(db: Database, worker_id: int) -> int:
    """Hands back all that a worker holds; returns how many."""
    return await db.execute(_SQL["release_worker_messages"], worker_id=worker_id)


@store_call(Kind.READ, idempotent=True)
async def dead_letters(
    db: Database, queue_id: int, queue: str, *, limit: int, after: DeadLetter | None = None, cut: int = WHOLE
) -> list[DeadLetter]:
    """Oldest first, a page at a time; payloads are cut."""
    rows = await db.fetch(
        _SQL["dead_letters"],
        queue_id=queue_id,
        most=most_behind(after.dead_since, limit) if after else limit,
        after_time=after.dead_since if after else EPOCH,
        after_id=after.id if after else 0,
        cut=cut,
    )
    return [
        DeadLetter(id_, queue, payload, priority, attempts, max_attempts, enqueued_at, dead_since)
        for id_, _, payload, priority, attempts, max_attempts, enqueued_at, dead_since in rows
    ]


@store_call(Kind.STATEMENT, idempotent=True)
async def replay(db: Database, queue_id: int, ids: Sequence[int]) -> int:
    """Dead letters among the given ids start anew; returns how many."""
    return await db.execute(_SQL["replay"], queue_id=queue_id, ids=ids)


@store_call(Kind.STATEMENT, idempotent=True)
async def purge(db: Database, queue_id: int, *, batch: int, archived: bool) -> int:
    """Deletes up to `batch` messages, live or archived; returns how many."""
    query = _SQL["purge_archived" if archived else "purge_messages"]
    return await db.execute(query, queue_id=queue_id, batch=batch)


def _listed(queue_ids: Sequence[int]) -> list[tuple[int]]:
    return [(queue_id,) for queue_id in queue_ids]


def _ids(rows: Sequence[Row]) -> set[int]:
    return {row[0] for row in rows}


def _without(fences: Sequence[Fence], done: set[int]) -> list[Fence]:
    return [fence for fence in fences if fence[0] not in done]
