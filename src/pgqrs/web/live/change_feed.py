"""Watching the store for all streams of a process: one question now and then, only while somebody listens."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from pgqrs.db.views import changes
from pgqrs.db.views.changes import ChangeMarks
from pgqrs.web.live.busy import Busy

if TYPE_CHECKING:
    from pgqrs.api.store import Store

log: logging.Logger = logging.getLogger("pgqrs.web")

# A change is to be on screen within a second; sooner than 250 ms nobody could read it.
LOOK_EVERY_SECONDS = 0.4
# A look that takes long comes the more seldom: watching takes at most a fortieth of one connection's time.
REST_PER_LOOK = 40
# However many pages follow, making them takes at most a twentieth of the time.
REST_PER_PAGE = 20
# But so often they are told in any case.
MOST_REST_SECONDS = 15.0
SECONDS_AFTER_FAILURE = 5.0
# On PostgreSQL an event with a lower number may be committed after one with a higher: looked for so long.
LATE_SECONDS = 5.0
# More runs than this are told as one hint without an id.
MOST_IDS = 50
# What a stream that was cut off can catch up on.
MOST_KEPT = 1_000


class Hint(NamedTuple):
    """Something of this kind changed; `id` is None when it is not known which, or when it is many."""

    kind: str
    id: int | None = None


# Nobody knows what has changed: everything may have.
ALL = Hint("all")


class ChangeFeed:
    """Asks the store what has changed, and keeps the last answers for whoever listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pages: Busy = Busy()
        # Ids of hints are good for this process only.
        self._epoch = secrets.token_hex(4)
        self._kept: deque[tuple[int, Hint]] = deque(maxlen=MOST_KEPT)
        self._last = 0
        self._news = asyncio.Event()
        self._started = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._seen = _Seen()
        self.closed: bool = False

    @property
    def listeners(self) -> int:
        return self._listeners

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Watches at least as long as this lasts."""
        self._listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="pgqrs-web-watcher")
        try:
            yield
        finally:
            self._listeners -= 1

    def place(self, last_event_id: str | None) -> int:
        """Where a stream goes on: after that hint, or here and now; -1 when it is not known what it missed."""
        if not last_event_id:
            return self._last
        epoch, _, number = last_event_id.partition("-")
        known = epoch == self._epoch and number.isdecimal() and len(number) <= 15 and int(number) <= self._last
        return int(number) if known else -1

    def since(self, place: int) -> list[tuple[int, Hint]]:
        """What is new after that place, each hint once and with its own place."""
        oldest = self._kept[0][0] if self._kept else self._last + 1
        if place < oldest - 1:
            return [(self._last, ALL)]
        latest = {hint: number for number, hint in self._kept if number > place}
        return sorted((number, hint) for hint, number in latest.items())

    def event_id(self, place: int) -> str:
        return f"{self._epoch}-{place}"

    async def started(self, seconds: float) -> None:
        """Until it is known how things stand: whatever changes from then on is told."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._started.wait()

    async def wait(self, seconds: float) -> bool:
        """True when there is news within that time, or the watcher is closed."""
        news = self._news
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Streams end, and nothing is asked any more."""
        self.closed = True
        self._ring()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ring(self) -> None:
        ringing, self._news = self._news, asyncio.Event()
        ringing.set()

    async def _watch(self) -> None:
        while self._listeners and not self.closed:
            started = time.monotonic()
            try:
                found = await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, those who listen must not go deaf for good
                log.warning("cannot see what has changed: %s", error)
                await asyncio.sleep(SECONDS_AFTER_FAILURE)
                continue
            self._started.set()
            for hint in found:
                self._last += 1
                self._kept.append((self._last, hint))
            spent = self.pages.seconds
            if found:
                self._ring()
            await asyncio.sleep(max(LOOK_EVERY_SECONDS, REST_PER_LOOK * (time.monotonic() - started)))
            await self._rest_from_pages(spent, since=started)

    async def _rest_from_pages(self, spent: float, *, since: float) -> None:
        """What was told last has brought the pages here: the more they took, the longer until the next."""
        while True:
            wanted = min(REST_PER_PAGE * (self.pages.seconds - spent), MOST_REST_SECONDS)
            if (left := since + wanted - time.monotonic()) <= 0:
                return
            await asyncio.sleep(left)

    async def _look(self) -> list[Hint]:
        db = await self._store.ready()
        pulse = await changes.pulse(db, after_event=self._seen.events_from, after_run=self._seen.newest_run)
        return self._seen.compared(pulse)


class _Seen:
    """What the last look saw."""

    def __init__(self) -> None:
        self._pulse: ChangeMarks | None = None
        # Events up to here are done with; those after it that were seen already.
        self.events_from: int | None = None
        self._events: set[int] = set()
        # When the newest event was which.
        self._newest: deque[tuple[float, int]] = deque()

    @property
    def newest_run(self) -> int | None:
        return None if self._pulse is None else self._pulse.newest_run

    def compared(self, pulse: ChangeMarks) -> list[Hint]:
        """What is different now; nothing at the first look."""
        before, self._pulse = self._pulse, pulse
        moved = self._moved(pulse)
        if before is None:
            return []
        kinds = [kind for kind, numbers in pulse.numbers.items() if numbers != before.numbers[kind]]
        hints = [Hint(kind) for kind in kinds if kind != "run"]
        if moved is None:
            return [Hint("run"), *hints]
        moved |= set(pulse.new_runs) | _different(before.at_work, pulse.at_work)
        if len(moved) > MOST_IDS or (not moved and "run" in kinds):
            return [Hint("run"), *hints]
        return [*(Hint("run", run_id) for run_id in sorted(moved)), *hints]

    def _moved(self, pulse: ChangeMarks) -> set[int] | None:
        """The runs to which something happened; None when it is too much to tell."""
        now = time.monotonic()
        if pulse.events is None or self.events_from is None:
            self.events_from = pulse.newest_event
            self._events.clear()
            self._newest.clear()
            return set() if pulse.events is not None else None
        moved = {run_id for event_id, run_id in pulse.events if event_id not in self._events}
        self._newest.append((now, pulse.newest_event))
        while self._newest[0][0] < now - LATE_SECONDS:
            self.events_from = max(self.events_from, self._newest.popleft()[1])
        self._events = {event_id for event_id, _ in pulse.events if event_id > self.events_from}
        return moved


def _different(before: changes.AtWork, now: changes.AtWork) -> set[int]:
    """Runs that began, went on or are no more at work."""
    return {run_id for run_id in before.keys() | now.keys() if before.get(run_id) != now.get(run_id)}
