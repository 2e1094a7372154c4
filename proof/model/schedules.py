"""The model of schedules, on top of that of runs: each slot comes once, and its policies say what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pgqrs.engine.schedules.scheduler import MOST_MISSED_ROWS, ON_TIME_SECONDS
from pgqrs.types import RunStatus
from proof.model.queues import Name, RefusedError
from proof.model.records import Run
from proof.model.runs import LIVE, Model

EVERY = timedelta(seconds=100)
# How many slots the policy `all` makes up for.
CATCH_UP_LIMIT = 3


@dataclass(slots=True)
class Schedule:
    workflow: str
    overlap: str
    catch_up: str
    created_at: datetime
    slots_after: datetime
    next_slot_at: datetime
    paused_at: datetime | None = None
    last_slot_at: datetime | None = None
    last_run: Name | None = None

    def slots(self, after: datetime, until: datetime) -> list[datetime]:
        """In (after, until]; counted from its creation, so that nothing drifts."""
        first = max(1, (after - self.created_at) // EVERY + 1)
        last = (until - self.created_at) // EVERY
        return [self.created_at + n * EVERY for n in range(first, last + 1)]

    def next_after(self, instant: datetime) -> datetime:
        return self.slots(instant, instant + 2 * EVERY)[0]


@dataclass(slots=True)
class Slot:
    state: str
    run: Name | None
    created_at: datetime


@dataclass(slots=True)
class WholeModel(Model):
    schedules: dict[str, Schedule] = field(default_factory=dict)
    slots: dict[tuple[str, datetime], Slot] = field(default_factory=dict)

    def _found(self, name: str) -> Schedule:
        if name not in self.schedules:
            raise RefusedError("ScheduleNotFound")
        return self.schedules[name]

    def schedule(self, *, name: str, workflow: str, overlap: str, catch_up: str) -> None:
        """Made, or changed to be so; its times stay what they are."""
        found = self.schedules.get(name)
        if found is None:
            found = self.schedules[name] = Schedule(workflow, overlap, catch_up, self.now, self.now, self.now)
        elif (found.workflow, found.overlap, found.catch_up) == (workflow, overlap, catch_up):
            return
        found.workflow, found.overlap, found.catch_up = workflow, overlap, catch_up
        found.next_slot_at = found.next_after(found.slots_after)

    def pause_schedule(self, *, name: str) -> None:
        found = self._found(name)
        found.paused_at = found.paused_at or self.now

    def resume_schedule(self, *, name: str, catch_up: bool) -> None:
        """What passed during a pause is not made up for, unless that is asked for."""
        found = self._found(name)
        if found.paused_at is not None:
            found.paused_at = None
            found.slots_after = found.slots_after if catch_up else max(self.now, found.slots_after)
            found.next_slot_at = found.next_after(found.slots_after)

    def delete_schedule(self, *, name: str) -> None:
        self._found(name)
        del self.schedules[name]
        self.slots = {key: slot for key, slot in self.slots.items() if key[0] != name}

    def trigger_schedule(self, *, name: str) -> list[Name]:
        return [self._run_now(self._found(name))]

    def _run_now(self, schedule: Schedule) -> Name:
        return self._new_run(Run(schedule.workflow, None, self.now, self.now, 3))

    def fire(self, *, name: str) -> tuple[int, int, int] | None:
        """How many were triggered, cancelled and missed; None when nothing is due."""
        schedule = self.schedules.get(name)
        if schedule is None or schedule.paused_at is not None:
            return None
        waiting = [at for (whose, at), slot in sorted(self.slots.items()) if whose == name and slot.state == "queued"]
        if not waiting and schedule.next_slot_at > self.now:
            return None
        come, missed, due = self._come(schedule)
        for at in come:
            self.slots[name, at] = Slot("missed", None, self.now)
        runs, cancelled = self._settle(name, schedule, waiting, due)
        schedule.slots_after = max([schedule.slots_after, *come])
        schedule.last_slot_at = come[-1] if come else schedule.last_slot_at
        schedule.last_run = runs[-1] if runs else schedule.last_run
        schedule.next_slot_at = schedule.next_after(max(self.now, schedule.slots_after))
        return len(runs), cancelled, len(missed)

    def _come(self, schedule: Schedule) -> tuple[list[datetime], list[datetime], list[datetime]]:
        """The slots since the last look: all of them, those let go of, those to be triggered."""
        most = CATCH_UP_LIMIT if schedule.catch_up == "all" else 1
        come = schedule.slots(schedule.slots_after, self.now)[-most - MOST_MISSED_ROWS :]
        due = come[-most:]
        if schedule.catch_up == "none" and due and self.now - due[0] > timedelta(seconds=ON_TIME_SECONDS):
            due = []
        return come, come[: len(come) - len(due)], due

    def _settle(
        self, name: str, schedule: Schedule, waiting: list[datetime], due: list[datetime]
    ) -> tuple[list[Name], int]:
        """The overlap policy: (the new runs, how many runs were cancelled)."""
        before = self._cancelled()
        last = self.runs[schedule.last_run] if schedule.last_run else None
        active = schedule.last_run if last and last.status in LIVE and last.deleted_at is None else None
        # What waits in line comes first, one at a time.
        fired = waiting[:1] if active is None else []
        busy = active is not None or bool(fired)
        runs = [self._fire_slot(name, schedule, at) for at in fired]
        match schedule.overlap:
            case "allow":
                fired, rest = due, []
            case "cancel":
                fired, rest = due[-1:], due[:-1]
                if fired and busy:
                    self.cancel(run=runs[-1] if runs else active, reason=f"schedule {name!r} came round again")
            case _:
                fired, rest = ([], due) if busy else (due[:1], due[1:])
        runs += [self._fire_slot(name, schedule, at) for at in fired]
        for at in rest:
            self.slots[name, at].state = "queued" if schedule.overlap == "queue" else "skipped"
        return runs, self._cancelled() - before

    def _fire_slot(self, name: str, schedule: Schedule, at: datetime) -> Name:
        slot = self.slots[name, at]
        slot.state, slot.run = "fired", self._run_now(schedule)
        return slot.run

    def _cancelled(self) -> int:
        return sum(run.status is RunStatus.CANCELLED for run in self.runs.values())
