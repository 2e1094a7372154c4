"""Direct calls: a run that the calling process executes, and what calls whose process has ended left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.runs import claims, transitions, triggers
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.triggers import NewRuns, Triggered
from pgqrs.db.tables import runs, workers
from pgqrs.db.tables.runs import RunRow
from pgqrs.errors import OutcomeUnknown
from pgqrs.serialization import object_in
from pgqrs.text.shell import command
from pgqrs.types import RunStatus, WorkerStatus

_SQL = load(__package__, "direct_calls")

# The name under which direct calls are workers.
NAME = "direct"


class Begun(NamedTuple):
    """A direct call: its worker, its run, and the lease where the run is new."""

    worker_id: int
    run_id: int
    claim: Claim | None = None


class CallingProcess(NamedTuple):
    """A direct call as its worker's row describes it."""

    worker_id: int
    is_stopped: bool
    silent_seconds: float
    info: Mapping[str, Any]


class UnfinishedCall(NamedTuple):
    run_id: int
    workflow: str
    queue_id: int


@store_call(Kind.UNIT, idempotent=True)
async def begin(db: Database, new: NewRuns, *, workflow: str, info: Mapping[str, Any], lease_seconds: float) -> Begun:
    """Create a run that this process holds from the start, and the worker that says so: both or neither.

    A run that has the key of the new one is continued instead, and restarted if it has failed. `info` has a `call`
    that no other call has: by it a call finds out that it was carried out although its reply was lost.
    """
    if db.retried and (begun := await _begun(db, info["call"])) is not None:
        return await _leased(db, begun, lease_seconds=lease_seconds)
    if new.keys:
        [made] = await triggers.trigger_once(db, new)
    else:
        made = Triggered((await triggers.trigger(db, new))[0], is_new=True)
    begun = await _registered(db, made.run_id, workflow=workflow, info=info)
    if not made.is_new:
        row = await runs.get(db, made.run_id)
        if row.status is RunStatus.ERROR:
            _refuse_unknown(row)
            await transitions.restart(db, made.run_id, unless_compensated=True)
        return begun
    return await _leased(db, begun, lease_seconds=lease_seconds)


def _refuse_unknown(row: RunRow) -> None:
    """A program repeats its call; whether a step whose outcome is unknown runs again is for a person to decide."""
    if object_in(row.error).get("type") == OutcomeUnknown.__name__:
        raise OutcomeUnknown(
            f"run {row.run_id} ended because the outcome of a step is unknown, and a call does not run it again",
            hint=f"find out whether it did its work, then: {command('run restart', row.run_id)}",
        )


@store_call(Kind.UNIT, idempotent=True)
async def join(db: Database, run_id: int, *, workflow: str, info: Mapping[str, Any]) -> Begun:
    """Register a call that executes a run which exists already."""
    if db.retried and (begun := await _begun(db, info["call"])) is not None:
        return begun
    return await _registered(db, run_id, workflow=workflow, info=info)


async def _begun(db: Database, call: str) -> Begun | None:
    found = (each for each in await callers(db) if each.info.get("call") == call)
    return next((Begun(each.worker_id, each.info["run_id"]) for each in found), None)


async def _registered(db: Database, run_id: int, *, workflow: str, info: Mapping[str, Any]) -> Begun:
    told = {**info, "workflow": workflow, "run_id": run_id}
    return Begun(await workers.register(db, queue_id=None, name=NAME, port=0, info=told), run_id)


async def _leased(db: Database, begun: Begun, *, lease_seconds: float) -> Begun:
    worker_id, run_id, _ = begun
    claimed = await claims.claim_due(db, [run_id], worker_id=worker_id, lease_seconds=lease_seconds, attempt=1)
    return begun._replace(claim=claimed[0] if claimed else None)


@store_call(Kind.UNIT, idempotent=True)
async def leave(db: Database, worker_id: int, run_ids: Sequence[int], *, ended: bool) -> None:
    """Sign a call off. One whose run has not ended keeps its row: the next call finds the run by it."""
    await db.execute(_SQL["release_runs"], run_ids=run_ids, worker_id=worker_id)
    if ended:
        await db.execute(_SQL["delete_worker"], worker_id=worker_id)
    else:
        await workers.stop(db, worker_id)


@store_call(Kind.STATEMENT, idempotent=True)
async def forget(db: Database, worker_id: int) -> None:
    """Delete the row of a call whose run has ended without it."""
    await db.execute(_SQL["delete_worker"], worker_id=worker_id)


@store_call(Kind.READ, idempotent=True)
async def callers(db: Database) -> list[CallingProcess]:
    """Return the direct calls whose runs may not have ended, oldest first."""
    return [
        CallingProcess(worker_id, status == WorkerStatus.STOPPED, silent, workers.told(info))
        for worker_id, status, silent, info in await db.fetch(_SQL["callers"], name=NAME)
    ]


@store_call(Kind.READ, idempotent=True)
async def live_descendants(db: Database, run_id: int) -> list[UnfinishedCall]:
    """Return the unfinished children of a run, and theirs, parents first."""
    found: list[UnfinishedCall] = []
    seen = {run_id}
    parents = [run_id]
    while parents:
        rows = await db.fetch(_SQL["live_children"], run_ids=parents)
        # A run that is its own ancestor, as only a row that was changed by hand can be, would be found for ever.
        level = [each for each in (UnfinishedCall(*row) for row in rows) if each.run_id not in seen]
        found += level
        parents = [each.run_id for each in level]
        seen.update(parents)
    return found


class Holding(NamedTuple):
    """A lease, and what the worker that holds it says of itself."""

    fence: tuple[int, int]
    info: Mapping[str, Any]


@store_call(Kind.READ, idempotent=True)
async def holdings(db: Database, run_ids: Sequence[int], *, worker_id: int) -> list[Holding]:
    """Return the leases that workers other than this one have on the given runs."""
    rows = await db.fetch(_SQL["holders"], run_ids=run_ids, worker_id=worker_id)
    return [Holding((message_id, token), workers.told(info)) for message_id, token, info in rows]


@store_call(Kind.STATEMENT, idempotent=True)
async def expire(db: Database, fences: Sequence[tuple[int, int]]) -> None:
    """End leases whose process is known to have ended."""
    await db.execute(_SQL["expire_leases"], given=fences)


@store_call(Kind.READ, idempotent=True)
async def seconds_until_due(db: Database, run_ids: Sequence[int]) -> float | None:
    """Return the time until the first of the given runs may be leased; None when none of them ever may."""
    seconds = (await db.fetch(_SQL["seconds_until_due"], run_ids=run_ids))[0][0]
    return None if seconds is None else float(seconds)
