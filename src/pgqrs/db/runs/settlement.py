"""What many executions did, recorded in one transaction: checkpoints, ends, events. All of it fenced.

On PostgreSQL that is one statement in one round trip, unless others have to be told or woken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.runs import transitions, triggers
from pgqrs.db.runs.history import RunEvent, insert_events, publish
from pgqrs.db.runs.records import STEP_COLUMNS, Ended, RunFence, RunWrite, StepRecord, Suspended, run_events
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.serialization import decode
from pgqrs.types import RunStatus

_SQL = load(__package__, "settlement")

# The columns of `settle` that a row has no use for.
_NO_END = (None,) * 9
_NO_EVENT: tuple[Any, Any] = (None, None)

# What happened, and the fence of whoever says so: a worker that took its own lost run again holds one of two.
_Told = tuple[RunFence, RunEvent]


def _needed(db: Database, writes: Sequence[RunWrite]) -> Kind:
    return Kind.UNIT if db.audit_policy.published or any(map(_reaches_others, writes)) else Kind.STATEMENT


def _reaches_others(write: RunWrite) -> bool:
    """True when more is to be done than one statement can: a parent, a dead letter, a signal, the outbox."""
    end = write.end
    if write.again:
        return True
    if end is None:
        return bool(write.emissions)
    if isinstance(end, Ended):
        return write.has_parent or end.status is RunStatus.ERROR or bool(write.emissions)
    return bool(write.emissions) or end.children or bool(end.signals)


@store_call(_needed, idempotent=True)
async def commit(db: Database, writes: Sequence[RunWrite]) -> set[RunFence]:
    """Records what many executions did; returns the fences that still held. No step may be in it twice.

    Idempotent: steps are recorded once, and after an ending nobody holds the fence any more; a retried ending is
    recognised by the status that it wrote.
    """
    retried = db.retried or any(write.again for write in writes)
    # What happened is worked out before the steps are written: after a lost reply they may be there already.
    news = await _unknown_yet(db, writes) if retried else writes
    told = [(write.fence, run_event) for write in news for run_event in run_events(write)]
    kept = [each for each in told if each[1].event in db.audit_policy.kept]
    settle = _settle_at_once if db.dialect.is_postgres else _settle_by_parts
    held = await settle(db, writes, kept)
    # What only records steps, as most do, concerns nobody else.
    await _tell_others(db, [write for write in writes if write.end is not None and write.fence in held])
    if db.audit_policy.published or any(write.emissions for write in news):
        await publish(
            db,
            [run_event for fence, run_event in told if fence in held],
            [each for write in news if write.fence in held for each in write.emissions],
        )
    if retried:
        held |= await _already_written(db, [write for write in writes if write.fence not in held])
    return held


async def hold(db: Database, fences: Sequence[RunFence]) -> set[RunFence]:
    """Those of the given that are still held, locked until the transaction ends."""
    given = sorted({(message_id, token) for _, message_id, token in fences})
    return {(row[0], row[1], row[2]) for row in await db.fetch(_SQL["hold"], given=given)}


async def record_steps(db: Database, writes: Sequence[RunWrite]) -> None:
    """Steps of runs that are held."""
    rows = [(write.fence[0], *step[:STEP_COLUMNS]) for write in writes for step in _once_each(write.steps)]
    if rows:
        await db.execute(_SQL["record_steps"], given=rows)


def _once_each(steps: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """A step that is mentioned twice is recorded as it was last."""
    return steps if len(steps) <= 1 else list({step.step_id: step for step in steps}.values())


# -- on PostgreSQL: one statement ----------------------------------------------------------------------------


async def _settle_at_once(db: Database, writes: Sequence[RunWrite], told: Sequence[_Told]) -> set[RunFence]:
    events: dict[RunFence, list[tuple[Any, Any]]] = {}
    for fence, run_event in told:
        events.setdefault(fence, []).append((run_event.event, run_event.data))
    steps: list[tuple[Any, ...]] = []
    ends: list[tuple[Any, ...]] = []
    for fence, recorded, end, *_ in writes:
        _, message_id, token = fence
        for step in recorded if len(recorded) <= 1 else _once_each(recorded):
            steps.append((message_id, token, *step[:STEP_COLUMNS]))  # noqa: PERF401 - one list for all of them
        if end is None and recorded and not events:
            continue
        # The end comes with the last event, which tells of it.
        *earlier, last = events.pop(fence, None) or [_NO_EVENT]
        ends += [(message_id, token, *_NO_END, *event) for event in earlier]
        if end is not None or last is not _NO_EVENT or not recorded:
            ends.append((message_id, token, *(_NO_END if end is None else _columns(end)), *last))
    expected = len(steps) + len(ends)
    if ends:
        # In one order, as everybody locks; what belongs to one run stays in its own.
        ends.sort(key=itemgetter(0))
        [[answer]] = await db.fetch(_SQL["settle"], steps=steps, ends=ends, expected=expected)
    else:
        [[answer]] = await db.fetch(_SQL["settle_steps"], steps=steps, expected=expected)
    if answer is None:
        return {write.fence for write in writes}
    held = {(message_id, token) for message_id, token in decode(answer)}
    return {write.fence for write in writes if write.fence[1:] in held}


def _columns(end: Ended | Suspended) -> tuple[Any, ...]:
    """status, output, error, last_error, signature, waiting_for, run_at, delay, give_back"""
    if isinstance(end, Ended):
        return (end.status, end.output, end.error, end.last_error, end.signature, None, None, None, None)
    give_back = 0 if end.count_attempt else 1
    return (end.status, None, end.error, end.last_error, None, end.waiting_for, end.run_at, end.delay, give_back)


# -- elsewhere: one statement for each table, in the writer's transaction ------------------------------------


async def _settle_by_parts(db: Database, writes: Sequence[RunWrite], told: Sequence[_Told]) -> set[RunFence]:
    if not told and all(write.end is None and write.steps for write in writes):
        # Nothing but steps, and most likely all of them are held: then that is all there is to do.
        steps = [(*write.fence[1:], *step[:STEP_COLUMNS]) for write in writes for step in _once_each(write.steps)]
        if await db.execute(_SQL["record_held_steps"], given=steps) == len(steps):
            return {write.fence for write in writes}
    held = await hold(db, [write.fence for write in writes])
    mine = [write for write in writes if write.fence in held]
    await record_steps(db, mine)
    endings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Ended)]
    yieldings = [(w.fence[0], w.end) for w in mine if isinstance(w.end, Suspended)]
    if endings:
        await _end(db, endings)
    if yieldings:
        await _yield(db, yieldings)
    await insert_events(db, [run_event for fence, run_event in told if fence in held])
    return held


async def _end(db: Database, endings: Sequence[tuple[int, Ended]]) -> None:
    await db.execute(
        _SQL["end_runs"],
        given=[(run_id, e.status, e.output, e.error, e.last_error, e.signature) for run_id, e in endings],
    )
    await transitions.delete_messages(db, [run_id for run_id, _ in endings])


async def _yield(db: Database, yieldings: Sequence[tuple[int, Suspended]]) -> None:
    await db.execute(
        _SQL["yield_runs"],
        given=[(run_id, y.status, y.error, y.last_error, y.waiting_for) for run_id, y in yieldings],
    )
    await db.execute(
        _SQL["yield_messages"],
        given=[(run_id, y.run_at, y.delay, 0 if y.count_attempt else 1) for run_id, y in yieldings],
    )


# -- who else is concerned -----------------------------------------------------------------------------------


async def end(db: Database, endings: Sequence[tuple[int, Ended]]) -> None:
    """Ends runs whose messages the caller has locked, whoever held them."""
    await _end(db, endings)
    await _tell_others(db, [RunWrite((run_id, 0, 0), end=ending) for run_id, ending in endings])


async def _tell_others(db: Database, writes: Sequence[RunWrite]) -> None:
    """Parents of what has ended, dead letters of what has failed; those that missed a signal, or a child's end."""
    children = [write.fence[0] for write in writes if write.has_parent and isinstance(write.end, Ended)]
    if children:
        await transitions.wake_parents(db, children)
    failed = [write.fence[0] for write in writes if write.end and write.end.status is RunStatus.ERROR]
    if failed:
        await triggers.trigger_dead_letters(db, failed)
    # The messages are locked: whatever was sent before is visible now, whatever comes later finds the run waiting.
    waiting = [(write.fence[0], write.end) for write in writes if isinstance(write.end, Suspended)]
    signals = [(run_id, name) for run_id, y in waiting for name in y.signals]
    if signals:
        await db.execute(_SQL["wake_those_with_signals"], given=signals)
    parents = [run_id for run_id, y in waiting if y.children]
    if parents:
        await db.execute(_SQL["wake_those_whose_children_ended"], run_ids=parents)
    any_of = [(run_id, child) for run_id, y in waiting for child in y.any_of]
    if any_of:
        await db.execute(_SQL["wake_those_of_whose_children_one_ended"], given=any_of)
    answerable = [(run_id, step_id) for run_id, y in waiting for step_id in y.answerable]
    if answerable:
        await db.execute(_SQL["wake_those_with_answers"], given=answerable)


# -- after a lost reply --------------------------------------------------------------------------------------


async def _unknown_yet(db: Database, writes: Sequence[RunWrite]) -> list[RunWrite]:
    """Without those whose steps are on record, and whose events are with them."""
    recorded = await runs.recorded_steps(db, sorted({w.fence[0] for w in writes})) if writes else {}
    known = [w for w in writes if w.end is None and all(_is_on_record(recorded[w.fence[0]], s) for s in w.steps)]
    return [w for w in writes if w not in known]


def _is_on_record(recorded: Mapping[str, RecordedStep], step: StepRecord) -> bool:
    found = recorded.get(step.step_id)
    return found is not None and (found.status, found.attempts) == (step.status, step.attempts)


async def _already_written(db: Database, writes: Sequence[RunWrite]) -> set[RunFence]:
    """Those whose ending, or whose steps, are there."""
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
