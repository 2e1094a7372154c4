"""Retention: how long what has ended is kept, and the small transactions that delete it afterwards.

A policy speaks of a kind of rows, perhaps of one workflow (or queue) and one status. It is carried out range by range
(a workflow and a status; a queue; a table) and batch by batch. A batch reads the oldest rows behind a place that the
caller remembers, locks those that may go and that nobody else has, and deletes them with all that belongs to them. It
waits for nobody: what is locked is passed over, so it can be part of no deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, assert_never, get_args

from pgqrs.clock import EPOCH
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.reports import RetentionPolicy

_SQL = load(__package__, "retention")

What = Literal["runs", "deleted_runs", "archived_messages", "events", "outbox", "workers", "schedule_slots"]
KINDS: tuple[What, ...] = get_args(What)

# One parent may have a hundred thousand children: a batch detaches no more than this.
_MOST_CHILDREN = 1_000


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far a range has been read: behind the row of that time and id."""

    at: datetime = EPOCH
    id: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """A policy, applied to one workflow and status, to one queue, or to a whole table."""

    what: What
    # What the policy says; '' for any.
    workflow: str
    status: str
    keep_seconds: float
    # What it is applied to.
    target_id: int = 0
    target_status: str = ""
    # Not 0: soft-deleted runs of this workflow have a policy of their own.
    apart: int = 0
    # Workers that never signed off count as gone after this long without a sign of life.
    silent_seconds: float = 0.0
    # Outbox only: those that were given up, in place of those that were published.
    dead: bool = False

    @property
    def policy(self) -> RetentionPolicy:
        return RetentionPolicy(self.what, self.workflow, self.status, timedelta(seconds=self.keep_seconds))

    @property
    def key(self) -> tuple[str, int, str]:
        return (self.what, self.target_id, self.target_status)


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of one transaction. `done`: the range has been read to its end."""

    seen: int
    deleted: int
    place: ReadPosition
    done: bool


# -- policies --------------------------------------------------------------------------------------------


@store_call(Kind.STATEMENT, idempotent=True)
async def set_policy(db: Database, what: str, workflow: str, status: str, *, keep_seconds: float) -> None:
    await db.execute(_SQL["set_policy"], what=what, workflow=workflow, status=status, keep=keep_seconds)


@store_call(Kind.UNIT, idempotent=True)
async def add_policies(db: Database, policies: Sequence[RetentionPolicy]) -> None:
    """Those that are not there yet."""
    for each in policies:
        await db.execute(
            _SQL["add_policy"],
            what=each.what,
            workflow=each.workflow,
            status=each.status,
            keep=each.keep.total_seconds(),
        )


@store_call(Kind.STATEMENT, idempotent=True)
async def remove_policy(db: Database, what: str, workflow: str, status: str) -> bool:
    """False when there was none."""
    return bool(await db.execute(_SQL["remove_policy"], what=what, workflow=workflow, status=status))


@store_call(Kind.READ, idempotent=True)
async def policies(db: Database) -> list[RetentionPolicy]:
    return [
        RetentionPolicy(what, workflow, status, timedelta(seconds=keep_seconds))
        for what, workflow, status, keep_seconds in await db.fetch(_SQL["list_policies"])
    ]


@store_call(Kind.READ, idempotent=True)
async def ranges(db: Database) -> list[Range]:
    """What every policy is about, the most specific winning."""
    return [Range(*row) for row in await db.fetch(_SQL["ranges"])]


@store_call(Kind.READ, idempotent=True)
async def due_ranges(db: Database, *, mine: bool = False) -> list[Range]:
    """Those with something old enough in them, that nobody is at (`mine`: nobody but the caller)."""
    return [Range(*row) for row in await db.fetch(_SQL["due_ranges"], mine=int(mine))]


@store_call(Kind.STATEMENT, idempotent=True)
async def take_turn(db: Database, *, seconds: float) -> bool:
    """False when somebody else was quicker; else the others hold back for some time."""
    return bool(await db.execute(_SQL["take_turn"], seconds=seconds))


@store_call(Kind.STATEMENT, idempotent=True)
async def keep_turn(db: Database, *, seconds: float) -> None:
    await db.execute(_SQL["keep_turn"], seconds=seconds)


# -- counting --------------------------------------------------------------------------------------------

_COUNTS = {
    "runs": "count_ended",
    "deleted_runs": "count_deleted",
    "archived_messages": "count_archived",
    "events": "count_events",
    "outbox": "count_published",
    "workers": "count_workers",
    "schedule_slots": "count_slots",
}


@store_call(Kind.READ, idempotent=True)
async def count(db: Database, given: Range, *, most: int) -> tuple[int, int]:
    """(old enough, of those deletable), looking at `most` rows at the most."""
    rows = await db.fetch(_SQL[_COUNTS[given.what]], batch=most, **_bounds(given), **_of(given))
    return int(rows[0][0]), int(rows[0][1])


# -- deleting --------------------------------------------------------------------------------------------


@store_call(Kind.UNIT, idempotent=True)
async def delete_batch(db: Database, given: Range, *, batch: int, after: ReadPosition) -> Batch:
    """One short transaction: the oldest of the range behind `after`."""
    match given.what:
        case "runs" | "deleted_runs":
            return await _delete_runs(db, given, batch, after)
        case "archived_messages":
            return await _delete_picked(db, given, batch, after, pick="pick_archived", delete="delete_archived")
        case "outbox":
            pick = "pick_dead" if given.dead else "pick_published"
            return await _delete_picked(db, given, batch, after, pick=pick, delete="delete_outbox")
        case "events":
            return await _delete_events(db, given, batch, after)
        case "workers":
            return await _delete_workers(db, given, batch, after)
        case "schedule_slots":
            return await _delete_slots(db, given, batch)
        case _:
            assert_never(given.what)


async def _delete_runs(db: Database, given: Range, batch: int, after: ReadPosition) -> Batch:
    soft = given.what == "deleted_runs"
    rows = await db.fetch(
        _SQL["pick_deleted" if soft else "pick_ended"],
        batch=batch,
        after_at=after.at,
        after_id=after.id,
        **_bounds(given),
    )
    if not rows:
        return Batch(0, 0, after, done=True)
    picked = [(row[0],) for row in rows]
    if soft:
        held = [row[0] for row in await db.fetch(_SQL["lock_messages"], given=picked)]
        locked = await db.fetch(_SQL["lock_deleted"], given=picked, held=held, keep=given.keep_seconds)
    else:
        # What has ended has no message.
        held = []
        locked = await db.fetch(
            _SQL["lock_ended"],
            given=picked,
            target_status=given.target_status,
            keep=given.keep_seconds,
            apart=given.apart,
        )
    run_ids = await _without_children(db, [row[0] for row in locked])
    if run_ids:
        if held:
            await db.execute(_SQL["delete_messages_of_runs"], run_ids=run_ids)
        for each in ("delete_steps", "delete_signals", "delete_events_of_runs", "delete_attributes", "delete_runs"):
            await db.execute(_SQL[each], run_ids=run_ids)
    return Batch(len(rows), len(run_ids), ReadPosition(rows[-1][1], rows[-1][0]), done=len(rows) < batch)


async def _without_children(db: Database, run_ids: list[int]) -> list[int]:
    """Those of the given that are nobody's parents any more: children are let go of, as many as a batch may."""
    if not run_ids:
        return []
    given = [(run_id,) for run_id in run_ids]
    if not await db.fetch(_SQL["parents_among"], given=given):
        return run_ids
    await db.execute(_SQL["detach_children"], given=given, most=_MOST_CHILDREN)
    # Some child is at work, or there are too many: the parent goes when the last of them has been let go of.
    parents = {row[0] for row in await db.fetch(_SQL["parents_among"], given=given)}
    return [run_id for run_id in run_ids if run_id not in parents]


async def _delete_picked(
    db: Database, given: Range, batch: int, after: ReadPosition, *, pick: str, delete: str
) -> Batch:
    rows = await db.fetch(_SQL[pick], batch=batch, after_at=after.at, **_bounds(given))
    if not rows:
        return Batch(0, 0, after, done=True)
    deleted = await db.execute(_SQL[delete], ids=[row[0] for row in rows])
    return Batch(len(rows), deleted, ReadPosition(rows[-1][1], rows[-1][0]), done=len(rows) < batch)


async def _delete_events(db: Database, given: Range, batch: int, after: ReadPosition) -> Batch:
    rows = await db.fetch(_SQL["pick_events"], batch=batch, after_id=after.id, keep=given.keep_seconds)
    if not rows:
        return Batch(0, 0, after, done=True)
    deleted = await db.execute(_SQL["delete_events"], given=[(row[0],) for row in rows])
    return Batch(len(rows), deleted, ReadPosition(rows[-1][1], rows[-1][0]), done=len(rows) < batch)


async def _delete_workers(db: Database, given: Range, batch: int, after: ReadPosition) -> Batch:
    bounds = {"keep": given.keep_seconds, "silent": given.silent_seconds}
    rows = await db.fetch(_SQL["pick_workers"], batch=batch, after_id=after.id, **bounds)
    if not rows:
        return Batch(0, 0, after, done=True)
    ids = [row[0] for row in rows]
    busy = {row[0] for row in await db.fetch(_SQL["workers_at_work"], ids=ids)}
    idle = [(worker_id,) for worker_id in ids if worker_id not in busy]
    deleted = await db.execute(_SQL["delete_workers"], given=idle, **bounds) if idle else 0
    return Batch(len(rows), deleted, ReadPosition(rows[-1][1], ids[-1]), done=len(rows) < batch)


async def _delete_slots(db: Database, given: Range, batch: int) -> Batch:
    rows = await db.fetch(_SQL["pick_slots"], batch=batch, keep=given.keep_seconds)
    deleted = await db.execute(_SQL["delete_slots"], given=[tuple(row) for row in rows]) if rows else 0
    return Batch(len(rows), deleted, ReadPosition(), done=len(rows) < batch)


def _bounds(given: Range) -> dict[str, Any]:
    return {"target_id": given.target_id, "target_status": given.target_status, "keep": given.keep_seconds}


def _of(given: Range) -> dict[str, Any]:
    return {"apart": given.apart, "silent": given.silent_seconds}
