"""What the worker that holds a run may do with it: claim, take a signal, spawn children. All of it fenced.

Whoever executes a run writes only under its lease: `settlement.hold` checks the tokens of the whole transaction and
locks the messages, and what is not held changes nothing. What an execution did is recorded in `settlement.py`; the
moves between statuses are drawn at the head of `transitions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar, cast

from pgqrs.audit import EventType
from pgqrs.db.database import (
    Database,
    ForeignAwait,
    Kind,
    LostMeanwhile,
    OwnSession,
    Row,
    Transaction,
    WorkFailed,
    drive,
    store_call,
)
from pgqrs.db.queries import load
from pgqrs.db.runs import settlement, transitions, triggers
from pgqrs.db.runs.history import Emission, RunEvent, facts, record_events
from pgqrs.db.runs.records import Ended, RunFence, RunWrite, StepRecord, answered_by, lease_events, run_events
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import messages, runs
from pgqrs.db.tables.messages import Lease, Source
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.errors import AlreadyCompleted, InvalidTransition, PermanentError
from pgqrs.types import RunStatus, StepStatus

T = TypeVar("T")
# The user's function of a transaction, giving what is to be recorded and published of it.
Work = Callable[[Transaction], Coroutine[Any, Any, tuple[str, Sequence[Emission]]]]

_SQL = load(__package__, "claims", pieces_of="pgqrs.db.tables:messages")


class Claim(NamedTuple):
    """A run in the hands of one worker, with all that executing it needs."""

    lease: Lease
    run_id: int
    # The database's time when it gave the lease: local clocks decide nothing.
    now: datetime
    lease_seconds: float
    steps: dict[str, RecordedStep]
    workflow_id: int
    input: str | None
    max_attempts: int
    parent_run_id: int | None
    created_at: datetime
    attributes: str | None
    # What it remembers of where it comes from, and its progress.
    headers: str | None = None
    # When it first began.
    started_at: datetime | None = None

    @property
    def waited(self) -> float | None:
        """For how many seconds it had been due when it was leased; None where nobody knows."""
        if self.lease.waited is not None:
            return self.lease.waited
        return None if self.lease.due_at is None else (self.now - self.lease.due_at).total_seconds()

    @property
    def fence(self) -> RunFence:
        return (self.run_id, self.lease.message_id, self.lease.lease_token)


# The columns of `claim_runs` and of `start_runs`, in their order; a test holds them against the SQL.
RUN_COLUMNS = Claim._fields[Claim._fields.index("workflow_id") :]
LEASE_COLUMNS = Lease._fields[: Lease._fields.index("due_at") + 1]
CLAIM_COLUMNS = (*LEASE_COLUMNS, *RUN_COLUMNS, "is_new", "has_steps")
START_COLUMNS = ("run_id", *RUN_COLUMNS, "is_new")
# Rows are read by place, and not made into tuples with names, as each claim reads one.
_LEASE = slice(len(LEASE_COLUMNS))
_RUN = slice(len(LEASE_COLUMNS), len(LEASE_COLUMNS) + len(RUN_COLUMNS))
_RUN_ID, _PRIORITY, _DUE_AT, _MESSAGE_ID, _IS_NEW, _HAS_STEPS = map(
    CLAIM_COLUMNS.index, ("run_id", "priority", "due_at", "message_id", "is_new", "has_steps")
)
_STARTED_ID = START_COLUMNS.index("run_id")
_STARTED_RUN = slice(1, 1 + len(RUN_COLUMNS))
_STARTED_IS_NEW = START_COLUMNS.index("is_new")


def _needed(db: Database, *_given: Any, **_named: Any) -> Kind:
    """One statement on PostgreSQL, unless each lease is to be told of, too."""
    if not db.dialect.is_postgres:
        return Kind.LEASE
    audit_policy = db.audit_policy
    told = (
        audit_policy.wants(EventType.LEASED) or audit_policy.wants(EventType.STARTED) or audit_policy.publishes_claims
    )
    return Kind.UNIT if told else Kind.STATEMENT


@store_call(_needed, idempotent=True)
async def claim(
    db: Database,
    queues: Sequence[Source],
    *,
    worker_id: int,
    batch: int,
    known: Collection[int] = (),
) -> list[Claim]:
    """Leases runs, turns them RUNNING and reads their steps."""
    seconds = {source.queue_id: source.lease_seconds for source in queues}
    if not db.dialect.is_postgres or db.retried:
        leases = await messages.lease(db, queues, worker_id=worker_id, batch=batch, known=known)
        return await _started(db, leases, worker_id=worker_id, lease_seconds=seconds)
    rows = await db.fetch(
        _SQL["claim_runs"],
        queue_ids=[source.queue_id for source in queues],
        queues=[(source.queue_id, source.lease_seconds, source.most) for source in queues],
        worker_id=worker_id,
        batch=batch,
    )
    # By priority, then age.
    rows.sort(key=lambda row: (-row[_PRIORITY], row[_DUE_AT], row[_MESSAGE_ID]))
    leases = [Lease(*row[_LEASE]) for row in rows]
    # Of a run that was leased before, too: its last holder may have recorded the first step after this statement had
    # begun and before the message was locked. `has_steps` does not see that.
    begun = [row[_RUN_ID] for row in rows if row[_HAS_STEPS] or not row[_IS_NEW]]
    found = await runs.recorded_steps(db, begun) if begun else {}
    new = {row[_RUN_ID] for row in rows if row[_IS_NEW] and not row[_HAS_STEPS]}
    await _tell_leases(db, leases, worker_id, new=new)
    return [
        _claim(lease, row[_RUN], seconds[lease.queue_id], found.get(row[_RUN_ID]) or {})
        for lease, row in zip(leases, rows, strict=True)
    ]


@store_call(Kind.UNIT, idempotent=True)
async def claim_run(db: Database, run_id: int, *, worker_id: int, lease_seconds: float) -> Claim:
    """This very run, whoever held it: for execution in the caller's process. SUCCESS and CANCELLED refuse."""
    has_message = await transitions.lock_message(db, run_id)
    status = await transitions.locked_status(db, run_id)
    if status is RunStatus.SUCCESS:
        raise AlreadyCompleted(f"run {run_id} has ended in SUCCESS", hint="trigger a new one, or reset it")
    if status is RunStatus.CANCELLED:
        raise InvalidTransition(f"run {run_id} was cancelled", hint="restart it first")
    if status is RunStatus.ERROR:
        # An end is never undone in silence.
        reopened = await transitions.forget_failure(db, run_id)
        await record_events(db, [RunEvent(run_id, EventType.RESTARTED, facts(reopened=reopened))])
    if not has_message:
        await transitions.revive(db, run_id)
    rows = await db.fetch(_SQL["lease_run"], run_id=run_id, worker_id=worker_id, lease_seconds=lease_seconds)
    lease = Lease(*rows[0])
    [claimed] = await _started(db, [lease], worker_id=worker_id, lease_seconds={lease.queue_id: lease_seconds})
    return claimed


@store_call(Kind.UNIT, idempotent=True)
async def claim_due(
    db: Database, run_ids: Sequence[int], *, worker_id: int, lease_seconds: float, attempt: int | None = None
) -> list[Claim]:
    """Lease those of the given runs whose time has come, and that no worker holds; `attempt` is what they count."""
    rows = await db.fetch(
        _SQL["lease_due_runs"], run_ids=run_ids, worker_id=worker_id, lease_seconds=lease_seconds, attempt=attempt
    )
    leases = [Lease(*row) for row in rows]
    seconds = {lease.queue_id: lease_seconds for lease in leases}
    return await _started(db, leases, worker_id=worker_id, lease_seconds=seconds)


async def _started(
    db: Database, leases: Sequence[Lease], *, worker_id: int, lease_seconds: Mapping[int, float]
) -> list[Claim]:
    by_run = {lease.run_id: lease for lease in leases if lease.run_id is not None}
    if not by_run:
        return []
    rows = await db.fetch(
        _SQL["start_runs"],
        worker_id=worker_id,
        given=[(run_id, *lease.fence, lease.attempts) for run_id, lease in by_run.items()],
    )
    by_id = {row[_STARTED_ID]: row for row in rows}
    started = [lease for run_id, lease in by_run.items() if run_id in by_id]
    found = await runs.recorded_steps(db, list(by_id)) if rows else {}
    new = {run_id for run_id, row in by_id.items() if row[_STARTED_IS_NEW] and not found[run_id]}
    await _tell_leases(db, started, worker_id, new=new)
    return [
        _claim(lease, by_id[run_id][_STARTED_RUN], lease_seconds[lease.queue_id], found[run_id])
        for run_id, lease in by_run.items()
        if run_id in by_id
    ]


async def _tell_leases(db: Database, leases: Sequence[Lease], worker_id: int, *, new: Container[int]) -> None:
    """`new` are the runs that have never been executed before."""
    told = lease_events(leases, worker_id, db.audit_policy, new=new)
    if told:
        await record_events(db, told)


def _claim(lease: Lease, run: Row, lease_seconds: float, steps: dict[str, RecordedStep]) -> Claim:
    """`run` has the columns `RUN_COLUMNS`."""
    now = lease.visible_after - timedelta(seconds=lease_seconds)
    return Claim(lease, cast(int, lease.run_id), now, lease_seconds, steps, *run)


class TakenSignal(NamedTuple):
    """What a step gets, and who sent it (`records.answered_by`)."""

    payload: str
    answered_by: str | None


@store_call(Kind.UNIT, idempotent=True)
async def take_signal(
    db: Database, fence: RunFence, step: StepRecord, *, name: str, again: bool = False
) -> tuple[bool, TakenSignal | None]:
    """(held, signal): the oldest unread signal of that name becomes the step's result; None when there is none.

    `again` here and below: the caller has asked before, and got no answer. An answer that a person gave is numbered.
    """
    if not await settlement.hold(db, [fence]):
        return False, None
    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:
        await db.execute(_SQL["number_step"], run_id=fence[0], step_id=step.step_id, sequence=step.sequence)
        return True, TakenSignal(found.output or "null", found.input)
    rows = await db.fetch(_SQL["next_signal"], run_id=fence[0], name=name)
    if not rows:
        return True, None
    signal_id, payload, actor = rows[0]
    await db.execute(_SQL["consume_signal"], signal_id=signal_id)
    answered = step._replace(status=StepStatus.SUCCESS, output=payload)
    await settlement.record_steps(db, [RunWrite(fence, (answered,))])
    by = answered_by(actor)
    if by is not None:
        # Apart: a step that is recorded already, because it waits, keeps its input.
        await db.execute(_SQL["note_who_answered"], run_id=fence[0], step_id=step.step_id, answered_by=by)
    return True, TakenSignal(payload or "null", by)


@store_call(Kind.UNIT, idempotent=True)
async def transact(
    db: Database,
    fence: RunFence,
    step: StepRecord,
    work: Work,
    *,
    sequence: Callable[[], int] | None = None,
    again: bool = False,
) -> str | None:
    """The user's statements and the step's record commit together; None when the lease is lost.

    `sequence` gives the number of the result once the work is done: work that takes long holds up no other result.
    WorkFailed holds what `work` raised: whatever its class, it is no trouble of the database's. LostMeanwhile: the
    lease was lost while it was at work, and nothing of it stays.

    The run is locked at the end only: the heartbeat must be able to renew the lease while the user's function works,
    and a `cancel` does not wait for it. After a lost reply the lock comes first, so that the first try
    has come to its end.
    """
    is_second = again or db.retried
    if not await (settlement.hold(db, [fence]) if is_second else messages.still_held(db, [fence[1:]])):
        return None
    if is_second and (found := await _recorded(db, fence, step)) is not None:
        return found.output or "null"
    output, emissions = await _worked(cast(OwnSession, db), work)
    if not is_second and not await settlement.hold(db, [fence]):
        raise LostMeanwhile(f"run {fence[0]}")
    number = None if sequence is None else sequence()
    done = StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=output, sequence=number)
    await settlement.record_steps(db, [RunWrite(fence, (done,))])
    await record_events(db, [], emissions)
    return output


async def _worked(session: OwnSession, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
    """Tells the user's errors from the engine's: if the connection broke, that is all that counts."""
    try:
        doing = work(Transaction(session))
        # Driven here, too, so that a function that awaits something else is told so as the user's mistake.
        result = await doing if session.dialect.is_postgres else _driven(doing)
    except Exception as error:
        if session.trouble is None:
            raise WorkFailed(error) from error
    else:
        if session.trouble is None:
            return result
    raise session.trouble


# What asyncio, anyio and sniffio say where no loop runs.
_WITHOUT_LOOP = ("event loop", "async context", "async backend")


def _driven(doing: Coroutine[Any, Any, T]) -> T:
    """Run the user's function in the writer's thread, where it can await its transaction and nothing else."""
    try:
        return drive(doing)
    except RuntimeError as error:
        if not isinstance(error, ForeignAwait) and not any(each in str(error) for each in _WITHOUT_LOOP):
            raise
        raise PermanentError(
            "the function in ctx.transaction awaited something other than its transaction: on this database it runs "
            "in the writer's thread, without an event loop. Await only `tx` in it",
            hint="do the rest in a step before it, and use that step's result",
        ) from error


async def _recorded(db: Database, fence: RunFence, step: StepRecord) -> RecordedStep | None:
    """After a lost reply: the step, when the first try was carried out."""
    found = (await runs.recorded_steps(db, [fence[0]]))[fence[0]].get(step.step_id)
    return found if found is not None and found.status is StepStatus.SUCCESS else None


@store_call(Kind.UNIT, idempotent=True)
async def spawn(
    db: Database, fence: RunFence, step: StepRecord, new: NewRuns, *, again: bool = False
) -> list[int] | None:
    """Child runs and the step that remembers them, in one transaction; None when the lease is lost."""
    if not await settlement.hold(db, [fence]):
        return None
    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:
        return [int(run_id) for run_id in (found.output or "[]").strip("[]").split(",") if run_id]
    run_ids = await triggers.trigger(db, new)
    remembered = "[" + ",".join(map(str, run_ids)) + "]"
    await settlement.record_steps(
        db, [RunWrite(fence, (step._replace(status=StepStatus.SUCCESS, output=remembered),))]
    )
    return run_ids


@store_call(Kind.UNIT, idempotent=True)
async def show_progress(db: Database, fence: RunFence, *, text: str) -> None:
    """How far a run is, for people; nothing when the lease is lost."""
    if await settlement.hold(db, [fence]):
        await db.execute(_SQL["show_progress"], run_id=fence[0], headers=text)


@store_call(Kind.UNIT, idempotent=True)
async def lose_places(db: Database, fence: RunFence, step_ids: Sequence[str]) -> bool:
    """Steps of an attempt that went another way keep their results; False when the lease is lost."""
    if not await settlement.hold(db, [fence]):
        return False
    await db.execute(_SQL["lose_places"], given=[(fence[0], step_id) for step_id in sorted(step_ids)])
    return True


@store_call(Kind.UNIT, idempotent=True)
async def make_room(db: Database, fence: RunFence, step_id: str) -> bool:
    """A step without a place gets an id that no handler asks for; False when the lease is lost."""
    if not await settlement.hold(db, [fence]):
        return False
    name, mark, rest = step_id.partition("@")
    await db.execute(_SQL["make_room"], run_id=fence[0], step_id=step_id, before=f"{name}#~", after=f"{mark}{rest}")
    return True


@store_call(Kind.UNIT, idempotent=True)
async def number_step(db: Database, fence: RunFence, step_id: str, sequence: int) -> bool:
    """A step that was answered from outside gets its number now, the last so far; False when the lease is lost."""
    if not await settlement.hold(db, [fence]):
        return False
    await db.execute(_SQL["number_step"], run_id=fence[0], step_id=step_id, sequence=sequence)
    return True


@store_call(Kind.READ, idempotent=True)
async def unread_signals(db: Database, run_id: int, names: Sequence[str]) -> dict[str, datetime]:
    """When the oldest unread signal of each of these names was sent, where there is one."""
    rows = await db.fetch(_SQL["unread_signals"], run_id=run_id, given=[(name,) for name in names])
    return {row[0]: row[1] for row in rows}


@store_call(Kind.UNIT, idempotent=True)
async def refuse_answer(db: Database, fence: RunFence, step_id: str, *, error: str) -> bool:
    """The answer to a wait, which the handler cannot take, becomes the wait's error; False when the lease is lost."""
    if not await settlement.hold(db, [fence]):
        return False
    await db.execute(_SQL["refuse_answer"], run_id=fence[0], step_id=step_id, error=error)
    return True


@store_call(Kind.READ, idempotent=True)
async def some_are_lost(db: Database, queue_ids: Sequence[int]) -> bool:
    """Is there anything for `end_lost` to do?"""
    return bool((await db.fetch(_SQL["some_run_is_lost"], queue_ids=queue_ids))[0][0])


@store_call(Kind.UNIT, idempotent=True)
async def end_lost(
    db: Database, queue_ids: Sequence[int], *, error: str, last_error: str, signature: str | None = None
) -> list[int]:
    """Runs whose workers were lost as often as they may be end in ERROR; returns them."""
    run_ids = [row[0] for row in await db.fetch(_SQL["lost_runs"], queue_ids=queue_ids)]
    if run_ids:
        ending = Ended(RunStatus.ERROR, error=error, last_error=last_error, signature=signature)
        await settlement.end(db, [(run_id, ending) for run_id in run_ids])
        await record_events(db, [h for run_id in run_ids for h in run_events(RunWrite((run_id, 0, 0), end=ending))])
    return run_ids
