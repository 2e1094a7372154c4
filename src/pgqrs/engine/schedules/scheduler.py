"""The scheduler: triggers what schedules are due. Any number may run; there is no leader.

Each looks at the same rows; a schedule is one transaction under its row's lock, and each slot a row that can be
inserted once. So it does not matter who is first, nor where somebody is killed.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgqrs.config import Config
from pgqrs.db import hints
from pgqrs.db.driver import Driver
from pgqrs.db.tables import schedules
from pgqrs.db.tables.schedules import Plan
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.schedules.cadence import Cadence
from pgqrs.errors import ConfigError, ConnectionFailed
from pgqrs.types import Schedule

log: logging.Logger = logging.getLogger("pgqrs.scheduler")

# What a turn fires at most, so that a loop that is told to stop does.
MOST_PER_TURN = 100
# The longest a scheduler sleeps: hints may be lost, and schedules come from other processes.
LONGEST_WAIT_SECONDS = 10.0
# A slot with the catch-up policy `none` is missed when it is older than this.
ON_TIME_SECONDS = 60.0
# How many missed slots are written down; after a long absence, the newest of them.
MOST_MISSED_ROWS = 100
# What one transaction triggers at most after an absence.
MOST_CATCH_UP = 1_000
# Somebody else is at what is due: look again soon, not at once.
_BUSY_SECONDS = 0.2
_AFTER_AN_ERROR_SECONDS = 60.0
_LONGEST_ERROR = 1000


@dataclass(frozen=True, slots=True)
class _Looked:
    due: int
    handled: int
    triggered: int
    # Until the first that is not due yet.
    seconds: float


class Scheduler:
    def __init__(self, db: Driver, config: Config) -> None:
        self._db = db
        self._config = config

    def loop(self) -> BackgroundLoop:
        """A role of its own, for `run` and `stop`."""
        return BackgroundLoop("scheduler", self.turn, hints=self._db.hints, topics=[hints.CATALOGUE])

    async def turn(self) -> float:
        """Fires what is due; the seconds until the next turn. One query when nothing is due."""
        looked = await self._look_and_fire()
        if looked.due and not looked.handled:
            return _BUSY_SECONDS
        return 0.0 if looked.due else min(looked.seconds, LONGEST_WAIT_SECONDS)

    async def fire_due(self) -> int:
        """Everything that is due now; how many runs were triggered. For tests and scripts."""
        total = 0
        while (looked := await self._look_and_fire()).handled:
            total += looked.triggered
        return total

    async def _look_and_fire(self) -> _Looked:
        found = await schedules.look(self._db, most=MOST_PER_TURN)
        due = list({schedule_id for schedule_id, seconds in found if seconds <= 0})
        # Several schedulers wake in the same moment: in another order each, they are less in each other's way.
        random.shuffle(due)
        done = [await self._fire(schedule_id) for schedule_id in due]
        return _Looked(
            due=len(due),
            handled=sum(each is not None for each in done),
            triggered=sum(each or 0 for each in done),
            seconds=min((seconds for _, seconds in found if seconds > 0), default=LONGEST_WAIT_SECONDS),
        )

    async def _fire(self, schedule_id: int) -> int | None:
        """How many runs were triggered; None when there was nothing to do, or somebody else is at it."""
        try:
            fired = await schedules.fire(self._db, schedule_id, plan=plan, max_attempts=self._config.max_attempts)
        except ConnectionFailed:
            raise
        except Exception as error:  # noqa: BLE001 - one schedule must not stop the others
            await self._complain(schedule_id, error)
            return 0
        if fired is None:
            return None
        if fired.missed:
            log.warning("schedule %r: let go of missed slots, %d of them on record", fired.name, fired.missed)
        self._db.hints.announce(fired.topics(published=bool(self._db.audit_policy.published)))
        return len(fired.run_ids)

    async def _complain(self, schedule_id: int, error: Exception) -> None:
        log.error("schedule %d could not fire: %s; next try in %.0f s", schedule_id, error, _AFTER_AN_ERROR_SECONDS)
        reason = f"{type(error).__name__}: {error}".replace("\0", "")[:_LONGEST_ERROR]
        await schedules.note_error(self._db, schedule_id, error=reason, delay=_AFTER_AN_ERROR_SECONDS)


def cadence_of(schedule: Schedule) -> Cadence:
    """Its times, or ConfigError when the row cannot be read (an edit by hand, a zone that this machine lacks)."""
    try:
        every = None if schedule.every_seconds is None else timedelta(seconds=schedule.every_seconds)
    except (OverflowError, ValueError):
        raise ConfigError(f"schedule {schedule.name!r} has an interval of {schedule.every_seconds} seconds") from None
    cadence = Cadence.of(cron=schedule.cron, every=every, at=schedule.at, timezone=schedule.timezone)
    return cadence.anchored(schedule.created_at)


def next_after(schedule: Schedule, instant: datetime) -> datetime | None:
    return cadence_of(schedule).next_after(instant)


def plan(schedule: Schedule, now: datetime) -> Plan:
    """The catch-up policy: which of the slots that have come are triggered.

    The slots are computed anew, after those that are done with: the time in the row only says when to look. So a
    clock that goes back repeats nothing, and a new time zone database moves slots that have not come.
    """
    cadence = cadence_of(schedule)
    match schedule.catch_up:
        case "all":
            # Within what `create` allows, whatever is in the row: slots are counted out one by one.
            most = min(max(schedule.catch_up_limit, 1), MOST_CATCH_UP)
        case "last" | "none":
            most = 1
        case other:
            raise ConfigError(f"schedule {schedule.name!r} has an unknown catch-up policy {other!r}")
    come = cadence.newest(schedule.slots_after, now, most=most + MOST_MISSED_ROWS)
    missed, due = come[:-most], come[-most:]
    if schedule.catch_up == "none" and due and now - due[0] > timedelta(seconds=ON_TIME_SECONDS):
        missed, due = come, []
    return Plan(missed, due, cadence.next_after(max(now, schedule.slots_after)))
