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
    ERROR     PENDING    restart, retry_children  (also CANCELLED)
    RUNNING   PENDING    restart: its worker crashed, and its lease has expired
    ERROR     PENDING    reset  (also RUNNING, PAUSED, CANCELLED, SUCCESS)
    RUNNING   PENDING    restore: a run that was deleted while it ran

Deleting is beside the status: `deleted_at` is set, nobody can lease the run, and `restore` takes that back.

A restart keeps what a run has recorded, and reopens the steps that made it fail (`healing.py`).

Here are the moves of whoever acts from outside; those of the worker that holds a run (claim, commit ...) are in
`claims.py`, how runs come to be in `triggering.py`. Who executes writes only under its lease. Who acts from outside
takes the message away or grows its token, so that the executor is fenced from that moment on. Both lock the message
first, then the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pgqrs.audit import EventType
from pgqrs.db.database import Database, IntegrityViolation, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.runs import restarts, triggers
from pgqrs.db.runs.history import RunEvent, facts, record_events
from pgqrs.db.runs.records import answered_by
from pgqrs.db.runs.restarts import EndedRun
from pgqrs.errors import AlreadyCompleted, IdempotencyConflict, InvalidTransition, RunNotFound
from pgqrs.serialization import object_in
from pgqrs.text.durations import LONGEST_SECONDS
from pgqrs.text.shell import command
from pgqrs.types import ENDED, RunStatus

_SQL = load(__package__, "transitions")

# As good as never: a run that a person paused waits for a person.
NEVER_SECONDS = LONGEST_SECONDS
# Whatever is visible only after this was put away by a person.
PUT_AWAY_SECONDS = NEVER_SECONDS / 2
# How many of the steps that it reopens, and of the children that it restarts, a restart names in the history.
_MOST_NAMED = 100


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
    await record_events(db, [RunEvent(each, EventType.CANCELLED, data, actor) for each in cancelled])
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
        await record_events(db, [RunEvent(run_id, EventType.PAUSED, facts(waiting_for=reason), actor)])


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
        _SQL["answer_step"], run_id=run_id, step_id=step_id, output=output, answered_by=answered_by(actor)
    ):
        paused = [row[0] for row in await db.fetch(_SQL["paused_steps"], run_id=run_id)]
        raise InvalidTransition(
            f"step {step_id!r} of run {run_id} is not paused", hint=f"paused are: {', '.join(paused) or 'none'}"
        )
    if status is RunStatus.PAUSED:
        await _set_status(db, run_id, RunStatus.PENDING)
        await record_events(db, [RunEvent(run_id, EventType.RESUMED, facts(step=step_id), actor)])
    await db.execute(_SQL["wake_run"], run_id=run_id)


@store_call(Kind.UNIT)
async def signal(db: Database, run_id: int, *, name: str, payload: str, actor: str | None = None) -> None:
    """Kept until the run asks for it; a waiting run is woken in the same transaction."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; signal {name!r} would never be read")
    await db.execute(_SQL["insert_signal"], run_id=run_id, name=name, payload=payload, actor=actor)
    if status is RunStatus.PAUSED:
        await db.execute(_SQL["wake_waiting_run"], run_id=run_id, put_away=PUT_AWAY_SECONDS)
    await record_events(db, [RunEvent(run_id, EventType.SIGNALLED, facts(name=name), actor)])


@store_call(Kind.UNIT, idempotent=True)
async def restart(
    db: Database,
    run_id: int,
    *,
    actor: str | None = None,
    request: str | None = None,
    unless_compensated: bool = False,
) -> None:
    """Continues an ended run, or one whose worker crashed, where it stopped: the steps at fault run again.

    `request` is an id of this call: when the reply is lost, the call that is repeated knows its own work by it. All
    other runs are refused, so that of several calls one restarts the run, and none takes it from its worker.
    `unless_compensated` is for callers that have not looked at the run: its refund may have been paid.
    """
    messages = await db.fetch(_SQL["lock_message"], run_id=run_id)
    run = await _locked(db, run_id)
    if db.retried and await _was_restarted_by(db, run, request):
        return
    _refuse_deleted(run)
    if run.status is RunStatus.SUCCESS:
        raise AlreadyCompleted(
            f"run {run_id} has ended in SUCCESS", hint=f"to run it from scratch: {command('run reset', run_id)}"
        )
    if run.status not in ENDED and not await _is_crashed(db, run, messages):
        raise InvalidTransition(await _no_restart(db, run, messages))
    if unless_compensated:
        restarts.refuse_compensated(run.ended)
    reopened = await restarts.reopened_by_restart(db, run.ended)
    await _restart(db, {run_id: reopened})
    data = facts(reopened=reopened[:_MOST_NAMED], request=request)
    await record_events(db, [RunEvent(run_id, EventType.RESTARTED, data, actor)])


@store_call(Kind.UNIT, idempotent=True)
async def retry_children(
    db: Database, run_id: int, *, actor: str | None = None, request: str | None = None
) -> list[int]:
    """Restarts a failed run together with the children that it failed because of, and theirs; returns all of them.

    A child that has succeeded, or was restarted, in the meantime stays as it is: the run asks for its result again.
    """
    messages = await db.fetch(_SQL["lock_message"], run_id=run_id)
    run = await _locked(db, run_id)
    if db.retried and await _was_restarted_by(db, run, request):
        return [run_id]
    _refuse_deleted(run)
    if run.status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; it has no failed children to retry")
    if run.status not in ENDED:
        raise InvalidTransition(
            f"{await _no_restart(db, run, messages)}. Only the children of a failed run can be retried together",
            hint="to restart one child: pgqrs run restart CHILD",
        )
    plan = await restarts.plan_of_retry(db, run.ended)
    await _restart(db, plan)
    run_events = []
    for each, reopened in plan.items():
        mine = each == run_id
        data = facts(
            reopened=reopened[:_MOST_NAMED],
            children=[child for child in plan if child != run_id][:_MOST_NAMED] if mine else None,
            retried_with=None if mine else run_id,
            request=request if mine else None,
        )
        run_events.append(RunEvent(each, EventType.RESTARTED, data, actor))
    await record_events(db, run_events)
    return list(plan)


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
    await record_events(db, [RunEvent(run_id, EventType.DELETED, facts(reason=reason), actor)])


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
        taken = await triggers.live_runs_by_key(db, [run.idempotency_key])
        if taken:
            raise _key_gone(run_id, run.idempotency_key, taken[0][1])
    try:
        await db.execute(_SQL["mark_restored"], run_id=run_id)
    except IntegrityViolation:
        raise _key_gone(run_id, str(run.idempotency_key), None) from None
    await db.execute(_SQL["show_message"], run_id=run_id, seconds=NEVER_SECONDS)
    # Children that ended meanwhile could not wake it.
    await db.execute(_SQL["wake_parents"], run_ids=[run_id], put_away=PUT_AWAY_SECONDS)
    await record_events(db, [RunEvent(run_id, EventType.RESTORED, actor=actor)])


def _key_gone(run_id: int, key: str, other: int | None) -> IdempotencyConflict:
    owner = "another run" if other is None else f"run {other}"
    return IdempotencyConflict(
        key,
        other,
        f"run {run_id} cannot be restored: {owner} has its idempotency key {key!r} now; delete that one first",
    )


@store_call(Kind.READ, idempotent=True)
async def queues_of(db: Database, run_ids: Sequence[int]) -> list[int]:
    """The queues of these runs, so that their workers can be told."""
    return [row[0] for row in await db.fetch(_SQL["queues_of_runs"], run_ids=run_ids)]


# -- parts of transitions: only inside a transaction of the caller's -----------------------------------------


async def revive(db: Database, run_id: int) -> None:
    """A message for a run that has none, or the one it has, fenced off from whoever held it."""
    await db.execute(_SQL["revive_messages"], run_ids=[run_id])


async def forget_failure(db: Database, run_id: int) -> list[str]:
    """Reopens the steps that made a failed run fail, but gives it no message; returns these steps."""
    reopened = await restarts.reopened_by_restart(db, (await _locked(db, run_id)).ended)
    await restarts.reopen(db, {run_id: reopened})
    await db.execute(_SQL["clear_ends"], run_ids=[run_id])
    return reopened


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


async def _restart(db: Database, plan: Mapping[int, Sequence[str]]) -> None:
    """Runs back to PENDING, without the records that the plan names, and with their attempts counted from 0."""
    await restarts.reopen(db, plan)
    await db.execute(_SQL["clear_ends"], run_ids=list(plan))
    await db.execute(_SQL["revive_messages"], run_ids=list(plan))


async def _is_crashed(db: Database, run: _Locked, messages: Sequence[Row]) -> bool:
    """True when the lease of its worker has expired; also when it has no message, so that no worker can take it."""
    if not messages:
        # Without a message it was failed, or damaged, a moment ago: a restart that came first gave it one.
        return not await db.fetch(_SQL["see_message"], run_id=run.run_id)
    [[_, leased_by, is_due]] = messages
    return run.status is RunStatus.RUNNING and leased_by is not None and bool(is_due)


async def _no_restart(db: Database, run: _Locked, messages: Sequence[Row]) -> str:
    """Why a live run is not restarted, and what helps."""
    match run.status:
        case RunStatus.PAUSED:
            fix = f"to continue it: {command('run resume', run.run_id)}"
        case RunStatus.RUNNING if messages and messages[0][1] is None:
            fix = f"its next attempt is due soon; to start that now: {command('run resume', run.run_id)}"
        case RunStatus.RUNNING:
            fix = "its worker holds the lease; wait for the end of the run, or cancel it first"
        case _:
            fix = "a worker takes it when it is due"
    rows = await db.fetch(_SQL["last_restarts"], run_id=run.run_id)
    if not rows:
        return f"run {run.run_id} is {run.status}; {fix}"
    _, actor, created_at = rows[0]
    when = f"{created_at:%Y-%m-%d %H:%M:%S} UTC" + (f", by {actor}" if actor else "")
    return f"run {run.run_id} was restarted already (at {when}) and is {run.status}; {fix}"


async def _was_restarted_by(db: Database, run: _Locked, request: str | None) -> bool:
    """After a lost reply: was the first try carried out? The history knows, if restarts are kept in it."""
    if request is None or EventType.RESTARTED not in db.audit_policy.kept:
        # Live again. Whether this call or another one did that, the run is where the caller wants it.
        return run.status not in ENDED
    rows = await db.fetch(_SQL["last_restarts"], run_id=run.run_id)
    return any(object_in(row[0]).get("request") == request for row in rows)


async def _begin_anew(db: Database, run_id: int, was: RunStatus, data: str | None, actor: str | None) -> None:
    await db.execute(_SQL["clear_ends"], run_ids=[run_id])
    await revive(db, run_id)
    if not (db.retried and was is RunStatus.PENDING):
        await record_events(db, [RunEvent(run_id, EventType.RESTARTED, data, actor)])


async def _set_status(
    db: Database, run_id: int, status: RunStatus, *, waiting_for: str | None = None, last_error: str | None = None
) -> None:
    await db.execute(
        _SQL["set_status"], run_id=run_id, status=str(status), waiting_for=waiting_for, last_error=last_error
    )


@dataclass(frozen=True, slots=True)
class _Locked:
    run_id: int
    status: RunStatus
    deleted_at: datetime | None
    idempotency_key: str | None
    error: str | None
    last_error: str | None

    @property
    def ended(self) -> EndedRun:
        return EndedRun(self.run_id, self.status, self.error, self.last_error)


async def _locked(db: Database, run_id: int) -> _Locked:
    rows = await db.fetch(_SQL["lock_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    status, *rest = rows[0]
    return _Locked(run_id, RunStatus(status), *rest)


async def locked_status(db: Database, run_id: int) -> RunStatus:
    """The run's status, which nobody else changes meanwhile; refuses deleted runs."""
    run = await _locked(db, run_id)
    _refuse_deleted(run)
    return run.status


def _refuse_deleted(run: _Locked) -> None:
    if run.deleted_at is not None:
        raise InvalidTransition(f"run {run.run_id} is deleted", hint="restore it first")
