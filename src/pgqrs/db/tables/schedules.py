"""Schedules and their slots: a slot is a row, and whoever inserts it triggers its run in the same transaction.

What is due, and when, is computed by the caller (`Planner`): the row that it is computed from is locked here.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgqrs.db.database import WHOLE, Database, Kind, Row, store_call
from pgqrs.db.hints import OUTBOX
from pgqrs.db.queries import load
from pgqrs.db.runs import transitions, triggers
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import workflows
from pgqrs.errors import ConfigError, InvalidTransition, ScheduleNotFound
from pgqrs.serialization import encode
from pgqrs.types import Schedule, ScheduleSlot, SlotState

_SQL = load(__package__, "schedules")

# Of the overlap policy `queue`: a workflow that cannot keep up must not gather slots for ever.
MOST_QUEUED = 1_000


@dataclass(frozen=True, slots=True)
class Definition:
    """What `create` was told; everything else in a schedule's row is how far it is."""

    name: str
    workflow: str
    kind: str
    cron: str | None
    interval_seconds: float | None
    once_at: datetime | None
    timezone: str
    input: str | None
    options: str | None
    overlap: str
    catch_up: str
    catch_up_limit: int
    jitter_seconds: float

    @property
    def cadence(self) -> tuple[Any, ...]:
        return (self.kind, self.cron, self.interval_seconds, self.once_at, self.timezone)


@dataclass(frozen=True, slots=True)
class Plan:
    """Of the slots that have come: those that are let go and those that are to be triggered, each rising."""

    missed: Sequence[datetime]
    due: Sequence[datetime]
    next_slot_at: datetime | None


# A schedule as it is, and the database's time.
Planner = Callable[[Schedule, datetime], Plan]
# The first slot after an instant.
NextAfter = Callable[[Schedule, datetime], datetime | None]


@dataclass(slots=True)
class Fired:
    """What one call did."""

    name: str
    run_ids: list[int] = field(default_factory=list)
    queue_ids: set[int] = field(default_factory=set)
    cancelled: list[int] = field(default_factory=list)
    missed: int = 0

    def topics(self, *, published: bool) -> list[int]:
        """Whom to tell of it."""
        told = [*self.queue_ids, *(-run_id for run_id in self.cancelled)]
        return [*told, OUTBOX] if told and published else told


# -- by whoever looks after schedules --------------------------------------------------------------------


@store_call(Kind.UNIT, idempotent=True)
async def upsert(db: Database, wanted: Definition, *, next_after: NextAfter) -> Schedule:
    """The schedule as wanted. One that is so already stays as it is; another cadence counts from now on."""
    await workflows.get(db, wanted.workflow)
    given = dataclasses.asdict(wanted)
    inserted = await db.execute(_SQL["insert_schedule"], **given)
    found, now = await _locked(db, wanted.name)
    is_new_cadence = bool(inserted) or _definition_of(found).cadence != wanted.cadence
    if not inserted and _definition_of(found) == wanted:
        return found
    slots_after = now if is_new_cadence else found.slots_after
    following = next_after(_redefined(found, wanted), slots_after)
    if following is None and is_new_cadence:
        raise ConfigError(f"schedule {wanted.name!r} has no slot in the future", hint="trigger the workflow instead")
    del given["name"]
    await db.execute(
        _SQL["redefine_schedule"],
        **given,
        schedule_id=found.schedule_id,
        slots_after=slots_after,
        next_slot_at=following,
    )
    return (await _locked(db, wanted.name))[0]


@store_call(Kind.READ, idempotent=True)
async def get(db: Database, name: str) -> tuple[Schedule, datetime]:
    """The schedule and the database's time."""
    rows = await db.fetch(_SQL["get_schedule"], name=name)
    if not rows:
        raise await _not_found(db, name)
    return _read(rows[0])


@store_call(Kind.READ, idempotent=True)
async def list_all(db: Database, *, limit: int = WHOLE, after: str = "", cut: int = WHOLE) -> list[Schedule]:
    """By name, from the one on that follows `after`; texts are cut."""
    return [Schedule(*row) for row in await db.fetch(_SQL["list_schedules"], most=limit, after=after, cut=cut)]


@store_call(Kind.READ, idempotent=True)
async def slots(db: Database, name: str, *, limit: int) -> list[ScheduleSlot]:
    """Newest first."""
    schedule, _ = await get(db, name)
    rows = await db.fetch(_SQL["list_slots"], schedule_id=schedule.schedule_id, most=limit)
    return [ScheduleSlot(slot_at, SlotState(state), run_id, at) for slot_at, state, run_id, at in rows]


@store_call(Kind.UNIT, idempotent=True)
async def pause(db: Database, name: str) -> None:
    """From now on nothing is triggered, queued slots included."""
    if not await db.execute(_SQL["pause_schedule"], name=name):
        raise await _not_found(db, name)


@store_call(Kind.UNIT, idempotent=True)
async def resume(db: Database, name: str, *, catch_up: bool, next_after: NextAfter) -> None:
    """Goes on with the next slot; with `catch_up`, what passed meanwhile counts as missed."""
    schedule, now = await _locked(db, name)
    if schedule.paused_at is None:
        return
    slots_after = schedule.slots_after if catch_up else max(now, schedule.slots_after)
    await db.execute(
        _SQL["resume_schedule"],
        schedule_id=schedule.schedule_id,
        slots_after=slots_after,
        next_slot_at=next_after(schedule, slots_after),
    )


@store_call(Kind.UNIT)
async def delete(db: Database, name: str) -> None:
    """The schedule and its slots; runs that it triggered go on."""
    schedule, _ = await _locked(db, name)
    await db.execute(_SQL["delete_slots"], schedule_id=schedule.schedule_id)
    await db.execute(_SQL["delete_schedule"], schedule_id=schedule.schedule_id)


@store_call(Kind.UNIT)
async def trigger(db: Database, name: str, *, max_attempts: int, actor: str | None = None) -> Fired:
    """A run now, beside the slots and whatever the overlap policy."""
    schedule, _ = await get(db, name)
    fired = Fired(name)
    await _trigger(db, schedule, None, fired, max_attempts=max_attempts, actor=actor)
    return fired


# -- by the scheduler ------------------------------------------------------------------------------------


@store_call(Kind.READ, idempotent=True)
async def look(db: Database, *, most: int) -> list[tuple[int, float]]:
    """The schedules that come first, with the seconds until they are due; at most 0 when they are."""
    return [(schedule_id, float(seconds)) for schedule_id, seconds in await db.fetch(_SQL["look"], most=most)]


@store_call(Kind.UNIT, idempotent=True)
async def fire(db: Database, schedule_id: int, *, plan: Planner, max_attempts: int) -> Fired | None:
    """Does what is due of one schedule; None when nothing is, or somebody else is at it."""
    rows = await db.fetch(_SQL["lock_due"], schedule_id=schedule_id)
    if not rows:
        return None
    schedule, now = _read(rows[0])
    planned = plan(schedule, now)
    come = [*planned.missed, *planned.due]
    mine = await _inserted(db, schedule_id, come)
    fired = Fired(schedule.name, missed=len(planned.missed))
    due = [slot for slot in planned.due if slot in mine]
    settled = await _settle(db, schedule, due, fired, max_attempts=max_attempts)
    if settled:
        await db.execute(_SQL["settle_slots"], schedule_id=schedule_id, given=settled)
    triggered = [run_id for _, _, run_id in settled if run_id is not None]
    await db.execute(
        _SQL["move_on"],
        schedule_id=schedule_id,
        slots_after=max([schedule.slots_after, *come]),
        last_slot_at=come[-1] if come else schedule.last_slot_at,
        last_run_id=triggered[-1] if triggered else schedule.last_run_id,
        next_slot_at=planned.next_slot_at,
    )
    return fired


@store_call(Kind.UNIT, idempotent=True)
async def note_error(db: Database, schedule_id: int, *, error: str, delay: float) -> None:
    """Why a schedule could not fire, for people; it is tried again after the delay."""
    await db.execute(_SQL["note_error"], schedule_id=schedule_id, error=error, delay=delay)


# A slot, its state and its run.
_Settled = tuple[datetime, str, int | None]


async def _settle(
    db: Database, schedule: Schedule, due: Sequence[datetime], fired: Fired, *, max_attempts: int
) -> list[_Settled]:
    """The overlap policy: which of the due slots, and of those queued before, are triggered."""
    settled: list[_Settled] = []
    active = await _active(db, schedule.last_run_id)
    rows = await db.fetch(_SQL["queued_slots"], schedule_id=schedule.schedule_id, most=MOST_QUEUED)
    waiting = [row[0] for row in rows]

    async def trigger_one(slot: datetime) -> int:
        run_id = await _trigger(db, schedule, slot, fired, max_attempts=max_attempts)
        settled.append((slot, SlotState.FIRED, run_id))
        return run_id

    if waiting and active is None:
        active = await trigger_one(waiting.pop(0))
    due = list(due)
    match schedule.overlap:
        case "allow":
            for slot in due:
                await trigger_one(slot)
        case "cancel":
            # Of several at once, all but the last would be cancelled as soon as they exist.
            settled += [(slot, SlotState.SKIPPED, None) for slot in due[:-1]]
            if due and active is not None:
                fired.cancelled += await _cancel(db, active, schedule.name)
            if due:
                await trigger_one(due[-1])
        case "skip" | "queue":
            if due and active is None:
                await trigger_one(due.pop(0))
            room = MOST_QUEUED - len(waiting) if schedule.overlap == "queue" else 0
            settled += [(slot, SlotState.QUEUED, None) for slot in due[:room]]
            settled += [(slot, SlotState.SKIPPED, None) for slot in due[room:]]
        case other:
            raise ConfigError(f"schedule {schedule.name!r} has an unknown overlap policy {other!r}")
    return settled


async def _trigger(
    db: Database,
    schedule: Schedule,
    slot: datetime | None,
    fired: Fired,
    *,
    max_attempts: int,
    actor: str | None = None,
) -> int:
    workflow = await workflows.get(db, schedule.workflow)
    options = schedule.options
    told = {} if slot is None else {"slot": slot.isoformat()}
    attributes = {**(options.get("attributes") or {}), "schedule": schedule.name, **told}
    [run_id] = await triggers.trigger(
        db,
        NewRuns(
            workflow.workflow_id,
            workflow.queue_id,
            ["null" if schedule.params_text is None else schedule.params_text],
            priority=options.get("priority", 0),
            delay=0.0 if slot is None else jitter(schedule, slot),
            max_attempts=options.get("max_attempts") or max_attempts,
            attributes=encode(attributes),
            actor=actor,
        ),
    )
    fired.run_ids.append(run_id)
    fired.queue_ids.add(workflow.queue_id)
    return run_id


def jitter(schedule: Schedule, slot: datetime) -> float:
    """Seconds from 0 to `jitter_seconds`: always the same for this slot, others for other schedules."""
    if not schedule.jitter_seconds:
        return 0.0
    digest = hashlib.sha256(f"{schedule.name} {slot.isoformat()}".encode()).digest()
    return schedule.jitter_seconds * int.from_bytes(digest[:8]) / 2**64


async def _active(db: Database, run_id: int | None) -> int | None:
    if run_id is None:
        return None
    rows = await db.fetch(_SQL["is_active"], run_id=run_id)
    return rows[0][0] if rows else None


async def _cancel(db: Database, run_id: int, name: str) -> list[int]:
    try:
        return await transitions.cancel(db, run_id, reason=f"schedule {name!r} came round again", actor="scheduler")
    except InvalidTransition:
        # It ended a moment ago.
        return []


async def _inserted(db: Database, schedule_id: int, come: Sequence[datetime]) -> set[datetime]:
    if not come:
        return set()
    rows = await db.fetch(_SQL["insert_slots"], schedule_id=schedule_id, given=[(slot,) for slot in come])
    return {row[0] for row in rows}


async def _locked(db: Database, name: str) -> tuple[Schedule, datetime]:
    rows = await db.fetch(_SQL["lock_schedule"], name=name)
    if not rows:
        raise await _not_found(db, name)
    return _read(rows[0])


def _read(row: Row) -> tuple[Schedule, datetime]:
    *columns, now = row
    return Schedule(*columns), now


def _definition_of(schedule: Schedule) -> Definition:
    return Definition(
        name=schedule.name,
        workflow=schedule.workflow,
        kind=schedule.kind,
        cron=schedule.cron,
        interval_seconds=schedule.every_seconds,
        once_at=schedule.at,
        timezone=schedule.timezone,
        input=schedule.params_text,
        options=schedule.options_text,
        overlap=schedule.overlap,
        catch_up=schedule.catch_up,
        catch_up_limit=schedule.catch_up_limit,
        jitter_seconds=schedule.jitter_seconds,
    )


def _redefined(schedule: Schedule, wanted: Definition) -> Schedule:
    """With the times that are wanted."""
    return dataclasses.replace(
        schedule,
        kind=wanted.kind,
        cron=wanted.cron,
        every_seconds=wanted.interval_seconds,
        at=wanted.once_at,
        timezone=wanted.timezone,
    )


async def _not_found(db: Database, name: str) -> ScheduleNotFound:
    return ScheduleNotFound(name, known=[row[0] for row in await db.fetch(_SQL["schedule_names"])])
