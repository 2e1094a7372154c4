"""The life of a run: each function is one transition and one transaction; nothing else writes a run's status.

    from      to         by
    --------  ---------  ------------------------------------------------------------------
    (none)    PENDING    trigger
    PENDING   RUNNING    claim
    PAUSED    RUNNING    claim (its time has come, or somebody woke it)
    RUNNING   RUNNING    claim (its worker was lost), commit of a retry
    RUNNING   PENDING    commit of a hand-back: its worker is stopping
    RUNNING   PAUSED     commit of a wait: asleep, waiting for a signal, a person, children
    RUNNING   SUCCESS    commit of an Ending
    RUNNING   ERROR      commit of an Ending; end_lost when its workers were lost max_attempts times
    PENDING   PAUSED     pause           (also RUNNING)
    PAUSED    PENDING    resume
    PENDING   CANCELLED  cancel          (also RUNNING, PAUSED)
    ERROR     PENDING    restart, reset  (also RUNNING, PAUSED, CANCELLED; reset: also SUCCESS)

Whoever executes a run writes only under its lease: `hold` checks the tokens of the whole transaction and locks the
messages, and what is not held changes nothing. Whoever acts from outside (cancel, pause, restart) takes the message
away or grows its token, so that the executor is fenced from that moment on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from pgqrs.db.database import Database, Kind, OwnSession, Transaction, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import messages, runs
from pgqrs.db.tables.messages import Lease
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.errors import AlreadyCompleted, InvalidTransition, RunNotFound
from pgqrs.types import RunStatus, StepStatus

_SQL = load(__package__, "lifecycle")

ENDED = frozenset({RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED})
# As good as never: a run that a person paused waits for a person.
NEVER_SECONDS = 100 * 365.25 * 86400
# Whatever is visible only after this was put away by a person.
_PUT_AWAY_SECONDS = NEVER_SECONDS / 2


@dataclass(frozen=True, slots=True)
class NewRuns:
    """Runs of one workflow with the same options; `inputs` are encoded."""

    workflow_id: int
    queue_id: int
    inputs: Sequence[str]
    priority: int = 0
    run_at: datetime | None = None
    delay: float = 0.0
    max_attempts: int = 3
    parent_run_id: int | None = None
    attributes: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A run in the hands of one worker, with all that executing it needs."""

    lease: Lease
    run_id: int
    workflow_id: int
    input: str | None
    max_attempts: int
    parent_run_id: int | None
    created_at: datetime
    now: datetime
    steps: dict[str, RecordedStep]

    @property
    def fence(self) -> RunFence:
        return (self.run_id, self.lease.message_id, self.lease.lease_token)


# A run, its message, and the token under which the caller holds it.
RunFence = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class StepRecord:
    step_id: str
    ordinal: int
    status: StepStatus
    input: str | None = None
    output: str | None = None
    error: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """SUCCESS or ERROR, for good."""

    status: RunStatus
    output: str | None = None
    error: str | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Yielding:
    """The run goes on later: at `run_at`, or `delay` seconds from now, or when what it waits for happens."""

    status: RunStatus
    run_at: datetime | None = None
    delay: float = 0.0
    count_attempt: bool = False
    error: str | None = None
    last_error: str | None = None
    waiting_for: str | None = None
    signals: tuple[str, ...] = ()
    children: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """What one execution wants recorded, all of it or nothing: steps, and perhaps how the pass ended."""

    fence: RunFence
    steps: tuple[StepRecord, ...] = ()
    end: Ending | Yielding | None = None


# -- by whoever wants something done ---------------------------------------------------------------------


@store_call(Kind.UNIT)
async def trigger(db: Database, new: NewRuns) -> list[int]:
    """The new runs' ids in the order given: runs and messages, all or none."""
    rows = await db.fetch(
        _SQL["insert_runs"],
        workflow_id=new.workflow_id,
        max_attempts=new.max_attempts,
        priority=new.priority,
        parent_run_id=new.parent_run_id,
        attributes=new.attributes,
        given=[(text,) for text in new.inputs],
    )
    run_ids = sorted(row[0] for row in rows)
    await db.execute(
        _SQL["insert_run_messages"],
        queue_id=new.queue_id,
        priority=new.priority,
        run_at=new.run_at,
        delay=new.delay,
        max_attempts=new.max_attempts,
        given=[(run_id,) for run_id in run_ids],
    )
    return run_ids


@store_call(Kind.UNIT, idempotent=True)
async def cancel(db: Database, run_id: int, *, reason: str | None) -> list[int]:
    """Ends the run and its unfinished children; returns those cancelled. Their executors are fenced at once."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await _locked_status(db, run_id)
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
        if await _locked_status(db, each) in ENDED:
            continue
        await _set_status(db, each, RunStatus.CANCELLED, last_error=reason)
        cancelled.append(each)
        todo += [row[0] for row in await db.fetch(_SQL["children_of"], run_id=each)]
    await db.execute(_SQL["delete_messages_of_runs"], run_ids=cancelled)
    await _wake_parents(db, [run_id])
    return cancelled


@store_call(Kind.UNIT, idempotent=True)
async def pause(db: Database, run_id: int, *, reason: str) -> None:
    """Takes the run out of everybody's hands until `resume`."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await _locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; it cannot be paused")
    await _set_status(db, run_id, RunStatus.PAUSED, waiting_for=reason)
    await db.execute(_SQL["put_away_message"], run_id=run_id, delay=NEVER_SECONDS)


@store_call(Kind.UNIT, idempotent=True)
async def resume(db: Database, run_id: int, *, step_id: str | None, output: str | None) -> None:
    """A paused run goes on now; with a step, `output` becomes what that step returns."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await _locked_status(db, run_id)
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
    await db.execute(_SQL["wake_run"], run_id=run_id)


@store_call(Kind.UNIT)
async def signal(db: Database, run_id: int, *, name: str, payload: str) -> None:
    """Kept until the run asks for it; a waiting run is woken in the same transaction."""
    await db.fetch(_SQL["lock_message"], run_id=run_id)
    status = await _locked_status(db, run_id)
    if status in ENDED:
        raise InvalidTransition(f"run {run_id} has ended in {status}; signal {name!r} would never be read")
    await db.execute(_SQL["insert_signal"], run_id=run_id, name=name, payload=payload)
    if status is RunStatus.PAUSED:
        await db.execute(_SQL["wake_waiting_run"], run_id=run_id, put_away=_PUT_AWAY_SECONDS)


@store_call(Kind.UNIT, idempotent=True)
async def restart(db: Database, run_id: int) -> None:
    """Once more from where it failed: completed steps are kept, unfinished ones cleared, attempts counted anew."""
    status = await _locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; use reset to run it again from the start")
    await db.execute(_SQL["delete_unfinished_steps"], run_id=run_id)
    await _begin_anew(db, run_id)


@store_call(Kind.UNIT, idempotent=True)
async def reset(db: Database, run_id: int, *, from_step: str | None) -> None:
    """From the start, or from the named step: what was recorded from there on is forgotten."""
    await _locked_status(db, run_id)
    if from_step is None:
        await db.execute(_SQL["delete_steps"], run_id=run_id)
    elif not await db.execute(_SQL["delete_steps_from"], run_id=run_id, step_id=from_step):
        raise InvalidTransition(f"run {run_id} has no recorded step {from_step!r}")
    await _begin_anew(db, run_id)


async def revive(db: Database, run_id: int) -> None:
    """A message for a pending run that has none. Only inside a transaction of the caller's."""
    await db.execute(_SQL["revive_message"], run_id=run_id)


async def _begin_anew(db: Database, run_id: int) -> None:
    await db.execute(_SQL["clear_end"], run_id=run_id)
    await revive(db, run_id)


async def _set_status(
    db: Database, run_id: int, status: RunStatus, *, waiting_for: str | None = None, last_error: str | None = None
) -> None:
    await db.execute(
        _SQL["set_status"], run_id=run_id, status=str(status), waiting_for=waiting_for, last_error=last_error
    )


async def _locked_status(db: Database, run_id: int) -> RunStatus:
    rows = await db.fetch(_SQL["lock_run"], run_id=run_id)
    if not rows:
        raise RunNotFound(run_id)
    return RunStatus(rows[0][0])


# -- by whoever executes ---------------------------------------------------------------------------------


@store_call(Kind.STATEMENT, idempotent=True)
async def claim(
    db: Database,
    queue_ids: Sequence[int],
    *,
    worker_id: int,
    batch: int,
    lease_seconds: float,
    known: Collection[int] = (),
) -> list[Claim]:
    """Leases runs, turns them RUNNING and reads their steps.

    The lease is what counts: a crash after it, before the run is marked RUNNING, is a lost worker like any other.
    """
    leases = await messages.lease(
        db, queue_ids, worker_id=worker_id, batch=batch, lease_seconds=lease_seconds, known=known
    )
    return await _started(db, leases, worker_id=worker_id, lease_seconds=lease_seconds)


@store_call(Kind.UNIT, idempotent=True)
async def claim_run(db: Database, run_id: int, *, worker_id: int, lease_seconds: float) -> Claim:
    """This very run, whoever held it: for execution in the caller's process. SUCCESS and CANCELLED refuse."""
    status = await _locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; trigger a new one, or reset it")
    if status is RunStatus.CANCELLED:
        raise InvalidTransition(f"run {run_id} was cancelled; restart it first")
    if status is RunStatus.ERROR:
        await db.execute(_SQL["delete_unfinished_steps"], run_id=run_id)
        await db.execute(_SQL["clear_end"], run_id=run_id)
    if not await db.fetch(_SQL["lock_message"], run_id=run_id):
        await db.execute(_SQL["revive_message"], run_id=run_id)
    rows = await db.fetch(_SQL["lease_run"], run_id=run_id, worker_id=worker_id, lease_seconds=lease_seconds)
    [claimed] = await _started(db, [Lease(*rows[0])], worker_id=worker_id, lease_seconds=lease_seconds)
    return claimed


async def _started(db: Database, leases: Sequence[Lease], *, worker_id: int, lease_seconds: float) -> list[Claim]:
    by_run = {lease.run_id: lease for lease in leases if lease.run_id is not None}
    if not by_run:
        return []
    rows = await db.fetch(
        _SQL["start_runs"],
        worker_id=worker_id,
        given=[(run_id, *lease.fence, lease.attempts) for run_id, lease in by_run.items()],
    )
    found = await runs.recorded_steps(db, [row[0] for row in rows]) if rows else {}
    started = {
        run_id: Claim(
            lease=by_run[run_id],
            run_id=run_id,
            workflow_id=workflow_id,
            input=text,
            max_attempts=max_attempts,
            parent_run_id=parent_run_id,
            created_at=created_at,
            now=_leased_at(by_run[run_id], lease_seconds),
            steps=found[run_id],
        )
        for run_id, workflow_id, text, max_attempts, parent_run_id, created_at in rows
    }
    return [started[run_id] for run_id in by_run if run_id in started]


def _leased_at(lease: Lease, lease_seconds: float) -> datetime:
    """The database's time when it gave the lease: local clocks decide nothing."""
    return lease.visible_after - timedelta(seconds=lease_seconds)


@store_call(Kind.UNIT, idempotent=True)
async def commit(db: Database, writes: Sequence[Write]) -> set[RunFence]:
    """Records what many executions did in one transaction; returns the fences that still held.

    Idempotent: steps are recorded once, and after an ending nobody holds the fence any more; a retried ending is
    recognised by the status that it wrote.
    """
    held = await _held(db, [write.fence for write in writes])
    mine = [write for write in writes if write.fence in held]
    await _record_steps(db, mine)
    endings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Ending)]
    yieldings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Yielding)]
    if endings:
        await _end(db, endings)
    if yieldings:
        await _yield(db, yieldings)
    if db.retried:
        held |= await _already_written(db, [w for w in writes if w.fence not in held])
    return held


async def _held(db: Database, fences: Sequence[RunFence]) -> set[RunFence]:
    given = sorted({(message_id, token) for _, message_id, token in fences})
    return {(row[0], row[1], row[2]) for row in await db.fetch(_SQL["hold"], given=given)}


async def _record_steps(db: Database, writes: Sequence[Write]) -> None:
    # By id: a step that a later write of the same batch mentions again is inserted once.
    rows = {
        (w.fence[0], s.step_id): (
            w.fence[0], s.step_id, s.ordinal, str(s.status), s.input, s.output, s.error, s.attempts,
        )
        for w in writes
        for s in w.steps
    }  # fmt: skip
    if rows:
        await db.execute(_SQL["record_steps"], given=list(rows.values()))


async def _end(db: Database, endings: Sequence[tuple[int, Ending]]) -> None:
    run_ids = [run_id for run_id, _ in endings]
    await db.execute(
        _SQL["end_runs"],
        given=[(run_id, str(e.status), e.output, e.error, e.last_error) for run_id, e in endings],
    )
    await db.execute(_SQL["delete_messages_of_runs"], run_ids=run_ids)
    await _wake_parents(db, run_ids)


async def _wake_parents(db: Database, run_ids: Sequence[int]) -> None:
    parents = [row[0] for row in await db.fetch(_SQL["parents_of"], run_ids=run_ids)]
    if parents:
        await db.fetch(_SQL["lock_parents"], run_ids=parents)
        await db.execute(_SQL["wake_parents"], run_ids=parents, put_away=_PUT_AWAY_SECONDS)


async def _yield(db: Database, yieldings: Sequence[tuple[int, Yielding]]) -> None:
    await db.execute(
        _SQL["yield_runs"],
        given=[(run_id, str(y.status), y.error, y.last_error, y.waiting_for) for run_id, y in yieldings],
    )
    await db.execute(
        _SQL["yield_messages"],
        given=[(run_id, y.run_at, y.delay, 0 if y.count_attempt else 1) for run_id, y in yieldings],
    )
    # The messages are locked: whatever was sent before is visible now, whatever comes later finds the run waiting.
    signals = [(run_id, name) for run_id, y in yieldings for name in y.signals]
    if signals:
        await db.execute(_SQL["wake_those_with_signals"], given=signals)
    children = [run_id for run_id, y in yieldings if y.children]
    if children:
        await db.execute(_SQL["wake_those_whose_children_ended"], run_ids=children)


async def _already_written(db: Database, writes: Sequence[Write]) -> set[RunFence]:
    """After a lost reply: those whose ending, or whose steps, are there."""
    done = set()
    for write in writes:
        run_id = write.fence[0]
        row = await runs.get(db, run_id)
        recorded = (await runs.recorded_steps(db, [run_id]))[run_id]
        steps_there = all(s.step_id in recorded and recorded[s.step_id].status == s.status for s in write.steps)
        ended = write.end is None or row.status == write.end.status
        if steps_there and ended and (write.end is not None or write.steps):
            done.add(write.fence)
    return done


@store_call(Kind.UNIT, idempotent=True)
async def take_signal(db: Database, fence: RunFence, step: StepRecord, *, name: str) -> tuple[bool, str | None]:
    """(held, payload): the oldest unread signal of that name becomes the step's result; None when there is none."""
    if not await _held(db, [fence]):
        return False, None
    if db.retried and (found := await _recorded(db, fence, step)) is not None:
        return True, found.output
    rows = await db.fetch(_SQL["next_signal"], run_id=fence[0], name=name)
    if not rows:
        return True, None
    signal_id, payload = rows[0]
    await db.execute(_SQL["consume_signal"], signal_id=signal_id)
    answered = StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=payload)
    await _record_steps(db, [Write(fence, (answered,))])
    return True, payload


@store_call(Kind.UNIT, idempotent=True)
async def transact(
    db: Database, fence: RunFence, step: StepRecord, work: Callable[[Transaction], Coroutine[Any, Any, str]]
) -> str | None:
    """The user's statements and the step's record commit together; None when the lease is lost."""
    if not await _held(db, [fence]):
        return None
    if db.retried and (found := await _recorded(db, fence, step)) is not None:
        return found.output or "null"
    output = await work(Transaction(cast(OwnSession, db)))
    done = StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=output)
    await _record_steps(db, [Write(fence, (done,))])
    return output


async def _recorded(db: Database, fence: RunFence, step: StepRecord) -> RecordedStep | None:
    """After a lost reply: the step, when the first try was carried out."""
    found = (await runs.recorded_steps(db, [fence[0]]))[fence[0]].get(step.step_id)
    return found if found is not None and found.status is StepStatus.SUCCESS else None


@store_call(Kind.UNIT, idempotent=True)
async def spawn(db: Database, fence: RunFence, step: StepRecord, new: NewRuns) -> list[int] | None:
    """Child runs and the step that remembers them, in one transaction; None when the lease is lost."""
    if not await _held(db, [fence]):
        return None
    if db.retried and (found := await _recorded(db, fence, step)) is not None:
        return [int(run_id) for run_id in (found.output or "[]").strip("[]").split(",") if run_id]
    run_ids = await trigger(db, new)
    remembered = "[" + ",".join(map(str, run_ids)) + "]"
    await _record_steps(
        db, [Write(fence, (StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=remembered),))]
    )
    return run_ids


@store_call(Kind.UNIT, idempotent=True)
async def show_progress(db: Database, fence: RunFence, *, text: str) -> None:
    """How far a run is, for people; nothing when the lease is lost."""
    if await _held(db, [fence]):
        await db.execute(_SQL["show_progress"], run_id=fence[0], headers=text)


@store_call(Kind.UNIT, idempotent=True)
async def end_lost(db: Database, queue_ids: Sequence[int], *, error: str, last_error: str) -> list[int]:
    """Runs whose workers were lost as often as they may be end in ERROR; returns them."""
    run_ids = [row[0] for row in await db.fetch(_SQL["lost_runs"], queue_ids=queue_ids)]
    if run_ids:
        ending = Ending(RunStatus.ERROR, error=error, last_error=last_error)
        await _end(db, [(run_id, ending) for run_id in run_ids])
    return run_ids
