"""The life of a run: each function is one transition and one transaction; nothing else writes a run's status.

    from      to         by
    --------  ---------  ------------------------------------------------------------------
    (none)    PENDING    trigger
    PENDING   RUNNING    claim
    PAUSED    RUNNING    claim (its time has come, or somebody woke it)
    RUNNING   RUNNING    claim (its worker was lost), commit of a retry
    RUNNING   PENDING    commit of a hand-back: its worker is stopping, or has no handler for it
    RUNNING   PAUSED     commit of a wait: asleep, waiting for a signal, a person, children
    RUNNING   SUCCESS    commit of an Ending
    RUNNING   ERROR      commit of an Ending; end_lost when its workers were lost max_attempts times
    PENDING   PAUSED     pause           (also RUNNING)
    PAUSED    PENDING    resume
    PENDING   CANCELLED  cancel          (also RUNNING, PAUSED)
    ERROR     PENDING    restart, reset  (also RUNNING, PAUSED, CANCELLED; reset: also SUCCESS)
    RUNNING   PENDING    restore: a run that was deleted while it ran

Deleting is beside the status: `deleted_at` is set, nobody can lease the run, and `restore` takes that back.

Here are the moves of whoever acts from outside; those of the worker that holds a run (claim, commit ...) are in
`claims.py`, how runs come to be in `triggering.py`. Who executes writes only under its lease. Who acts from outside
takes the message away or grows its token, so that the executor is fenced from that moment on. Both lock the message
first, then the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgqrs.db import triggering
from pgqrs.db.database import Database, IntegrityViolation, Kind, store_call
from pgqrs.db.history import Happening, facts, tell
from pgqrs.db.queries import load
from pgqrs.errors import AlreadyCompleted, IdempotencyConflict, InvalidTransition, RunNotFound
from pgqrs.journal import EventType
from pgqrs.types import ENDED, RunStatus

_SQL = load(__package__, "lifecycle")

# As good as never: a run that a person paused waits for a person.
NEVER_SECONDS = 100 * 365.25 * 86400
# Whatever is visible only after this was put away by a person.
PUT_AWAY_SECONDS = NEVER_SECONDS / 2


@store_call(Kind.UNIT, idempotent=True)
async def cancel(db: Database, run_id: int, *, reason: str | None = None, actor: str | None = None) -> list[int]:
    """Ends the run and its unfinished children; returns those cancelled. Their executors are fenced at once."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = (await _locked(db, run_id)).status
    if status is RunStatus.CANCELLED:
        return []
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; it cannot be cancelled any more")
    cancelled = []
    todo = [run_id]
    while todo:
        each = todo.pop()
        # Locked as its executor locks: what ends meanwhile has ended, and what it spawns meanwhile is seen.
        await db.fetch(_SQL["lock_message"], run_id=each)
        if (await _locked(db, each)).status in ENDED:
            continue
        await _set_status(db, each, RunStatus.CANCELLED, last_error=reason)
        cancelled.append(each)
        todo += [row[0] for row in await db.fetch(_SQL["children_of"], run_id=each)]
    await delete_messages(db, cancelled)
    await wake_parents(db, [run_id])
    data = facts(reason=reason)
    await tell(db, [Happening(each, EventType.CANCELLED, data, actor) for each in cancelled])
    return cancelled


@store_call(Kind.UNIT, idempotent=True)
async def pause(db: Database, run_id: int, *, reason: str, actor: str | None = None) -> None:
    """Takes the run out of everybody's hands until `resume`."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; it cannot be paused")
    await _set_status(db, run_id, RunStatus.PAUSED, waiting_for=reason)
    await db.execute(_SQL["put_away_message"], run_id=run_id, delay=NEVER_SECONDS)
    if not (db.retried and status is RunStatus.PAUSED):
        await tell(db, [Happening(run_id, EventType.PAUSED, facts(waiting_for=reason), actor)])


@store_call(Kind.UNIT, idempotent=True)
async def resume(
    db: Database, run_id: int, *, step_id: str | None, output: str | None, actor: str | None = None
) -> None:
    """A paused run goes on now; with a step, `output` becomes what that step returns."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; it cannot be resumed")
    if step_id is not None and not await db.execute(
        _SQL["answer_step"], run_id=run_id, step_id=step_id, output=output
    ):
        paused = [row[0] for row in await db.fetch(_SQL["paused_steps"], run_id=run_id)]
        raise InvalidTransition(
            f"step {step_id!r} of run {run_id} is not paused; paused are: {', '.join(paused) or 'none'}"
        )
    if status is RunStatus.PAUSED:
        await _set_status(db, run_id, RunStatus.PENDING)
        await tell(db, [Happening(run_id, EventType.RESUMED, facts(step=step_id), actor)])
    await db.execute(_SQL["wake_run"], run_id=run_id)


@store_call(Kind.UNIT)
async def signal(db: Database, run_id: int, *, name: str, payload: str, actor: str | None = None) -> None:
    """Kept until the run asks for it; a waiting run is woken in the same transaction."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; signal {name!r} would never be read")
    await db.execute(_SQL["insert_signal"], run_id=run_id, name=name, payload=payload)
    if status is RunStatus.PAUSED:
        await db.execute(_SQL["wake_waiting_run"], run_id=run_id, put_away=PUT_AWAY_SECONDS)
    await tell(db, [Happening(run_id, EventType.SIGNALLED, facts(name=name), actor)])


@store_call(Kind.UNIT, idempotent=True)
async def restart(db: Database, run_id: int, *, actor: str | None = None) -> None:
    """Once more from where it failed: completed steps are kept, unfinished ones cleared, attempts counted anew."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; use reset to run it again from the start")
    await db.execute(_SQL["delete_unfinished_steps"], run_id=run_id)
    await _begin_anew(db, run_id, status, facts(kept="completed steps"), actor)


@store_call(Kind.UNIT, idempotent=True)
async def reset(db: Database, run_id: int, *, from_step: str | None, actor: str | None = None) -> None:
    """From the start, or from the named step: what was recorded from there on is forgotten."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if from_step is None:
        await db.execute(_SQL["delete_steps"], run_id=run_id)
    elif not await db.execute(_SQL["delete_steps_from"], run_id=run_id, step_id=from_step):
        raise InvalidTransition(f"run {run_id} has no recorded step {from_step!r}")
    await _begin_anew(db, run_id, status, facts(from_step=from_step or "the start"), actor)


@store_call(Kind.UNIT, idempotent=True)
async def delete(db: Database, run_id: int, *, reason: str | None = None, actor: str | None = None) -> None:
    """Out of sight, and in nobody's hands any more; its idempotency key is free. Deleting again changes nothing."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    if (await _locked(db, run_id)).deleted_at is not None:
        return
    await db.execute(_SQL["mark_deleted"], run_id=run_id, reason=reason)
    await db.execute(_SQL["hide_message"], run_id=run_id, seconds=NEVER_SECONDS)
    # Nothing will come of this child any more.
    await wake_parents(db, [run_id])
    await tell(db, [Happening(run_id, EventType.DELETED, facts(reason=reason), actor)])


@store_call(Kind.UNIT, idempotent=True)
async def restore(db: Database, run_id: int, *, actor: str | None = None) -> None:
    """Takes `delete` back: what was under way goes on. IdempotencyConflict when its key has gone to another run."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    run = await _locked(db, run_id)
    if run.deleted_at is None:
        if db.retried:
            return
        raise InvalidTransition(f"run {run_id} is not deleted")
    if run.idempotency_key is not None:
        taken = await triggering.live_runs_by_key(db, [run.idempotency_key])
        if taken:
            raise _key_gone(run_id, run.idempotency_key, taken[0][1])
    try:
        await db.execute(_SQL["mark_restored"], run_id=run_id)
    except IntegrityViolation:
        raise _key_gone(run_id, str(run.idempotency_key), None) from None
    await db.execute(_SQL["show_message"], run_id=run_id, seconds=NEVER_SECONDS)
    # Children that ended meanwhile could not wake it.
    await db.execute(_SQL["wake_parents"], run_ids=[run_id], put_away=PUT_AWAY_SECONDS)
    await tell(db, [Happening(run_id, EventType.RESTORED, actor=actor)])


def _key_gone(run_id: int, key: str, other: int | None) -> IdempotencyConflict:
    owner = "another run" if other is None else f"run {other}"
    return IdempotencyConflict(
        key,
        other,
        f"run {run_id} cannot be restored: {owner} has its idempotency key {key!r} now; delete that one first",
    )


# -- parts of transitions: only inside a transaction of the caller's -----------------------------------------


async def revive(db: Database, run_id: int) -> None:
    """A message for a run that has none, or the one it has, fenced off from whoever held it."""
    await db.execute(_SQL["revive_message"], run_id=run_id)


async def forget_failure(db: Database, run_id: int) -> None:
    """A failed run as it was before it failed, but for its message."""
    await db.execute(_SQL["delete_unfinished_steps"], run_id=run_id)
    await db.execute(_SQL["clear_end"], run_id=run_id)


async def lock_message(db: Database, run_id: int) -> bool:
    """False when the run has no message."""
    return bool(await db.fetch(_SQL["lock_message"], run_id=run_id))


async def delete_messages(db: Database, run_ids: Sequence[int]) -> None:
    await db.execute(_SQL["delete_messages_of_runs"], run_ids=run_ids)


async def wake_parents(db: Database, run_ids: Sequence[int]) -> None:
    """The last child to end wakes its parent."""
    parents = [row[0] for row in await db.fetch(_SQL["parents_of"], run_ids=run_ids)]
    if parents:
        await db.fetch(_SQL["lock_parents"], run_ids=parents)
        await db.execute(_SQL["wake_parents"], run_ids=parents, put_away=PUT_AWAY_SECONDS)


async def _begin_anew(db: Database, run_id: int, was: RunStatus, data: str | None, actor: str | None) -> None:
    await db.execute(_SQL["clear_end"], run_id=run_id)
    await revive(db, run_id)
    if not (db.retried and was is RunStatus.PENDING):
        await tell(db, [Happening(run_id, EventType.RESTARTED, data, actor)])


async def _set_status(
    db: Database, run_id: int, status: RunStatus, *, waiting_for: str | None = None, last_error: str | None = None
) -> None:
    await db.execute(
        _SQL["set_status"], run_id=run_id, status=str(status), waiting_for=waiting_for, last_error=last_error
    )


@dataclass(frozen=True, slots=True)
class _Locked:
    status: RunStatus
    deleted_at: datetime | None
    idempotency_key: str | None


async def _locked(db: Database, run_id: int) -> _Locked:
    rows = await db.fetch(_SQL["lock_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    status, deleted_at, key = rows[0]
    return _Locked(RunStatus(status), deleted_at, key)


async def locked_status(db: Database, run_id: int) -> RunStatus:
    """The run's status, which nobody else changes meanwhile; refuses deleted runs."""
    run = await _locked(db, run_id)
    if run.deleted_at is not None:
        raise InvalidTransition(f"run {run_id} is deleted; restore it first")
    return run.status
