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
`claims.py`. Who executes writes only under its lease. Who acts from outside takes the message away or grows its
token, so that the executor is fenced from that moment on. Both lock the message first, then the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgqrs.db.database import Database, IntegrityViolation, Kind, store_call
from pgqrs.db.history import Happening, tell
from pgqrs.db.queries import load
from pgqrs.errors import AlreadyCompleted, IdempotencyConflict, InvalidTransition, PgqrsError, RunNotFound
from pgqrs.journal import EventType
from pgqrs.serialization import decode, encode, same_value
from pgqrs.types import ENDED, RunStatus

_SQL = load(__package__, "lifecycle")

# As good as never: a run that a person paused waits for a person.
NEVER_SECONDS = 100 * 365.25 * 86400
# Whatever is visible only after this was put away by a person.
PUT_AWAY_SECONDS = NEVER_SECONDS / 2
# A run that has the key may be deleted between our insert and our look, and another one triggered: try again.
_KEY_TRIES = 5
# Attributes are for finding runs; longer values are kept with the run, but not looked up.
_MOST_ATTRIBUTE = 200


@dataclass(frozen=True, slots=True)
class NewRuns:
    """Runs of one workflow with the same options. `inputs` are encoded; `keys` has one for each of them, or none."""

    workflow_id: int
    queue_id: int
    inputs: Sequence[str]
    keys: Sequence[str] = ()
    priority: int = 0
    run_at: datetime | None = None
    delay: float = 0.0
    max_attempts: int = 3
    parent_run_id: int | None = None
    attributes: str | None = None
    dead_letter_of: int | None = None


@dataclass(frozen=True, slots=True)
class Triggered:
    """A run, and whether this call made it or found it by its idempotency key."""

    run_id: int
    is_new: bool


@store_call(Kind.UNIT)
async def trigger(db: Database, new: NewRuns) -> list[int]:
    """The runs' ids in the order given: runs and messages, all or none."""
    return [each.run_id for each in await _trigger(db, new)]


@store_call(Kind.UNIT, idempotent=True)
async def trigger_once(db: Database, new: NewRuns) -> list[Triggered]:
    """As `trigger`, for runs that all have a key: after a lost reply it finds what it has made."""
    return await _trigger(db, new)


async def _trigger(db: Database, new: NewRuns) -> list[Triggered]:
    if not new.keys:
        run_ids = sorted(row[0] for row in await _insert(db, new, [(text, None) for text in new.inputs]))
        await _follow_up(db, new, run_ids)
        return [Triggered(run_id, is_new=True) for run_id in run_ids]
    inputs = _by_key(new)
    runs: dict[str, Triggered] = {}
    for _ in range(_KEY_TRIES):
        missing = [(text, key) for key, text in inputs.items() if key not in runs]
        made = await _insert(db, new, missing)
        runs |= {key: Triggered(run_id, is_new=True) for run_id, key in made}
        runs |= await _found(db, new, {key: text for text, key in missing if key not in runs})
        if len(runs) == len(inputs):
            await _follow_up(db, new, sorted(each.run_id for each in runs.values() if each.is_new))
            return [runs[key] for key in new.keys]
    raise PgqrsError(
        f"idempotency key {missing[0][1]!r} is in use by a transaction that this one cannot see; try yours again"
    )


def _by_key(new: NewRuns) -> dict[str, str]:
    """The inputs by their keys; a key that is given twice must be given with one input."""
    inputs: dict[str, str] = {}
    for text, key in zip(new.inputs, new.keys, strict=True):
        if not same_value(inputs.setdefault(key, text), text):
            raise IdempotencyConflict(key, None)
    return inputs


async def _insert(db: Database, new: NewRuns, given: Sequence[tuple[str, str | None]]) -> Sequence[Any]:
    return await db.fetch(
        _SQL["insert_runs"],
        workflow_id=new.workflow_id,
        max_attempts=new.max_attempts,
        priority=new.priority,
        parent_run_id=new.parent_run_id,
        attributes=new.attributes,
        dead_letter_of=new.dead_letter_of,
        given=given,
    )


async def _found(db: Database, new: NewRuns, inputs: Mapping[str, str]) -> dict[str, Triggered]:
    """Live runs with one of the keys; IdempotencyConflict when one is not the run that this would have been."""
    rows = await db.fetch(_SQL["find_runs_by_key"], given=[(key,) for key in inputs]) if inputs else []
    for key, run_id, workflow_id, text in rows:
        if workflow_id != new.workflow_id or not same_value(text or "null", inputs[key]):
            raise IdempotencyConflict(key, run_id)
    return {key: Triggered(run_id, is_new=False) for key, run_id, _, _ in rows}


async def _follow_up(db: Database, new: NewRuns, run_ids: Sequence[int]) -> None:
    """What a new run brings with it: its message, its attributes, its first event."""
    if not run_ids:
        return
    await db.execute(
        _SQL["insert_run_messages"],
        queue_id=new.queue_id,
        priority=new.priority,
        run_at=new.run_at,
        delay=new.delay,
        max_attempts=new.max_attempts,
        given=[(run_id,) for run_id in run_ids],
    )
    searchable = searchable_attributes(new.attributes)
    if searchable:
        given = [(name, value, run_id) for run_id in run_ids for name, value in searchable.items()]
        await db.execute(_SQL["insert_attributes"], given=given)
    if db.journal.wants(EventType.CREATED):
        origin = {"parent_run_id": new.parent_run_id, "dead_letter_of": new.dead_letter_of}
        data = _data(**{name: value for name, value in origin.items() if value is not None})
        await tell(db, [Happening(run_id, EventType.CREATED, data) for run_id in run_ids])


def searchable_attributes(text: str | None) -> dict[str, str]:
    """What of a run's attributes it can be found by: top-level text, numbers, yes and no, none; short ones."""
    given = decode(text) if text else None
    if not isinstance(given, Mapping):
        return {}
    found = {
        name: value if isinstance(value, str) else encode(value)
        for name, value in given.items()
        if value is None or isinstance(value, str | int | float)
    }
    return {
        name: value for name, value in found.items() if len(name) <= _MOST_ATTRIBUTE and len(value) <= _MOST_ATTRIBUTE
    }


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
    data = _data(reason=reason)
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
        await tell(db, [Happening(run_id, EventType.PAUSED, _data(waiting_for=reason), actor)])


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
        await tell(db, [Happening(run_id, EventType.RESUMED, _data(step=step_id), actor)])
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
    await tell(db, [Happening(run_id, EventType.SIGNALLED, _data(name=name), actor)])


@store_call(Kind.UNIT, idempotent=True)
async def restart(db: Database, run_id: int, *, actor: str | None = None) -> None:
    """Once more from where it failed: completed steps are kept, unfinished ones cleared, attempts counted anew."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; use reset to run it again from the start")
    await db.execute(_SQL["delete_unfinished_steps"], run_id=run_id)
    await _begin_anew(db, run_id, status, _data(kept="completed steps"), actor)


@store_call(Kind.UNIT, idempotent=True)
async def reset(db: Database, run_id: int, *, from_step: str | None, actor: str | None = None) -> None:
    """From the start, or from the named step: what was recorded from there on is forgotten."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if from_step is None:
        await db.execute(_SQL["delete_steps"], run_id=run_id)
    elif not await db.execute(_SQL["delete_steps_from"], run_id=run_id, step_id=from_step):
        raise InvalidTransition(f"run {run_id} has no recorded step {from_step!r}")
    await _begin_anew(db, run_id, status, _data(from_step=from_step or "the start"), actor)


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
    await tell(db, [Happening(run_id, EventType.DELETED, _data(reason=reason), actor)])


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
        taken = await db.fetch(_SQL["find_runs_by_key"], given=[(run.idempotency_key,)])
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


async def trigger_dead_letters(db: Database, run_ids: Sequence[int]) -> None:
    """For runs that have just failed: a run of the workflow that their own names for that."""
    for run_id, name, workflow_id, queue_id, text, error, last_error, attempt, max_attempts in await db.fetch(
        _SQL["dead_letters_of_runs"], run_ids=run_ids
    ):
        # Input and error are JSON already.
        about = encode({"run_id": run_id, "workflow": name, "last_error": last_error, "attempt": attempt})
        params = f'{about[:-1]},"input":{text or "null"},"error":{error or "null"}}}'
        new = NewRuns(workflow_id, queue_id, [params], max_attempts=max_attempts, dead_letter_of=run_id)
        await _trigger(db, new)


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


def _data(**facts: Any) -> str | None:
    """As JSON, without what is not known; None when nothing is."""
    known = {name: value for name, value in facts.items() if value is not None}
    return encode(known) if known else None
