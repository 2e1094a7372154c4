"""What the worker that holds a run may do with it: claim, commit, take a signal, spawn children. All of it fenced.

Whoever executes a run writes only under its lease: `hold` checks the tokens of the whole transaction and locks the
messages, and what is not held changes nothing. The moves between statuses are drawn at the head of `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from pgqrs.db import lifecycle, triggering
from pgqrs.db.database import Database, Kind, OwnSession, Transaction, store_call
from pgqrs.db.history import Emission, tell, tell_after_start
from pgqrs.db.queries import load
from pgqrs.db.tables import messages, runs
from pgqrs.db.tables.messages import Lease, Source
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.db.triggering import NewRuns
from pgqrs.db.writes import Ending, RunFence, StepRecord, Write, Yielding, happenings, lease_happenings
from pgqrs.errors import AlreadyCompleted, InvalidTransition
from pgqrs.types import RunStatus, StepStatus

_SQL = load(__package__, "claims")


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
    attributes: str | None
    now: datetime
    lease_seconds: float
    steps: dict[str, RecordedStep]

    @property
    def fence(self) -> RunFence:
        return (self.run_id, self.lease.message_id, self.lease.lease_token)


@store_call(Kind.STATEMENT, idempotent=True)
async def claim(
    db: Database,
    queues: Sequence[Source],
    *,
    worker_id: int,
    batch: int,
    known: Collection[int] = (),
) -> list[Claim]:
    """Leases runs, turns them RUNNING and reads their steps.

    The lease is what counts: a crash after it, before the run is marked RUNNING, is a lost worker like any other.
    """
    leases = await messages.lease(db, queues, worker_id=worker_id, batch=batch, known=known)
    seconds = {source.queue_id: source.lease_seconds for source in queues}
    return await _started(db, leases, worker_id=worker_id, lease_seconds=seconds)


@store_call(Kind.UNIT, idempotent=True)
async def claim_and_publish(
    db: Database,
    queues: Sequence[Source],
    *,
    worker_id: int,
    batch: int,
    known: Collection[int] = (),
) -> list[Claim]:
    """As `claim`, in one transaction: for a journal that publishes leases and starts, too."""
    return await claim(db, queues, worker_id=worker_id, batch=batch, known=known)


@store_call(Kind.UNIT, idempotent=True)
async def claim_run(db: Database, run_id: int, *, worker_id: int, lease_seconds: float) -> Claim:
    """This very run, whoever held it: for execution in the caller's process. SUCCESS and CANCELLED refuse."""
    has_message = await lifecycle.lock_message(db, run_id)
    status = await lifecycle.locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS; trigger a new one, or reset it")
    if status is RunStatus.CANCELLED:
        raise InvalidTransition(f"run {run_id} was cancelled; restart it first")
    if status is RunStatus.ERROR:
        await lifecycle.forget_failure(db, run_id)
    if not has_message:
        await lifecycle.revive(db, run_id)
    rows = await db.fetch(_SQL["lease_run"], run_id=run_id, worker_id=worker_id, lease_seconds=lease_seconds)
    lease = Lease(*rows[0])
    [claimed] = await _started(db, [lease], worker_id=worker_id, lease_seconds={lease.queue_id: lease_seconds})
    return claimed


async def _started(
    db: Database, leases: Sequence[Lease], *, worker_id: int, lease_seconds: Mapping[int, float]
) -> list[Claim]:
    by_run = {lease.run_id: lease for lease in leases if lease.run_id is not None}
    if not by_run:
        return []
    told = lease_happenings(by_run, worker_id, db.journal)
    kept = [(h.run_id, str(h.event), h.data) for h in told if h.event in db.journal.kept]
    rows = await db.fetch(
        _SQL["start_runs"],
        worker_id=worker_id,
        given=[(run_id, *lease.fence, lease.attempts) for run_id, lease in by_run.items()],
        events=kept,
    )
    ids = {row[0] for row in rows}
    await tell_after_start(db, [h for h in told if h.run_id in ids])
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
            attributes=attributes,
            now=_leased_at(by_run[run_id], lease_seconds[by_run[run_id].queue_id]),
            lease_seconds=lease_seconds[by_run[run_id].queue_id],
            steps=found[run_id],
        )
        for run_id, workflow_id, text, max_attempts, parent_run_id, created_at, attributes in rows
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
    # What happened is worked out before the steps are written: after a lost reply they may be there already.
    news = await _unknown_yet(db, mine) if db.retried else mine
    await _record_steps(db, mine)
    endings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Ending)]
    yieldings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Yielding)]
    if endings:
        await _end(db, endings)
    if yieldings:
        await _yield(db, yieldings)
    await tell(db, [h for w in news for h in happenings(w)], [e for w in news for e in w.emissions])
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
            w.fence[0], s.step_id, s.ordinal, str(s.status), s.input, s.output, s.error, s.attempts, s.seconds,
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
        given=[(run_id, str(e.status), e.output, e.error, e.last_error, e.signature) for run_id, e in endings],
    )
    await lifecycle.delete_messages(db, run_ids)
    await lifecycle.wake_parents(db, run_ids)
    failed = [run_id for run_id, e in endings if e.status is RunStatus.ERROR]
    if failed:
        await triggering.trigger_dead_letters(db, failed)


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


async def _unknown_yet(db: Database, writes: Sequence[Write]) -> list[Write]:
    """After a lost reply: without those whose steps are on record, and whose events are with them."""
    recorded = await runs.recorded_steps(db, sorted({w.fence[0] for w in writes})) if writes else {}
    known = [w for w in writes if w.end is None and all(_is_on_record(recorded[w.fence[0]], s) for s in w.steps)]
    return [w for w in writes if w not in known]


def _is_on_record(recorded: Mapping[str, RecordedStep], step: StepRecord) -> bool:
    found = recorded.get(step.step_id)
    return found is not None and (found.status, found.attempts) == (step.status, step.attempts)


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
    db: Database,
    fence: RunFence,
    step: StepRecord,
    work: Callable[[Transaction], Coroutine[Any, Any, tuple[str, Sequence[Emission]]]],
) -> str | None:
    """The user's statements and the step's record commit together; None when the lease is lost."""
    if not await _held(db, [fence]):
        return None
    if db.retried and (found := await _recorded(db, fence, step)) is not None:
        return found.output or "null"
    output, emissions = await work(Transaction(cast(OwnSession, db)))
    done = StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=output)
    await _record_steps(db, [Write(fence, (done,))])
    await tell(db, [], emissions)
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
    run_ids = await triggering.trigger(db, new)
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
async def end_lost(
    db: Database, queue_ids: Sequence[int], *, error: str, last_error: str, signature: str | None = None
) -> list[int]:
    """Runs whose workers were lost as often as they may be end in ERROR; returns them."""
    run_ids = [row[0] for row in await db.fetch(_SQL["lost_runs"], queue_ids=queue_ids)]
    if run_ids:
        ending = Ending(RunStatus.ERROR, error=error, last_error=last_error, signature=signature)
        await _end(db, [(run_id, ending) for run_id in run_ids])
        await tell(db, [h for run_id in run_ids for h in happenings(Write((run_id, 0, 0), end=ending))])
    return run_ids
