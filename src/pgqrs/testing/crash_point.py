"""Where a worker dies: the boundaries it passes, and what happens to it at the one that is chosen."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from pgqrs import faults
from pgqrs.errors import ConfigError, ConnectionFailed
from pgqrs.faults import Point

Mode = Literal["kill", "stall"]
MODES: tuple[Mode, ...] = ("kill", "stall")

# Whose code is running: a victim's, or none's. Tasks and threads take it over from whoever starts them.
current_fate: contextvars.ContextVar[CrashInjector | None] = contextvars.ContextVar("pgqrs_fate", default=None)

# From the heartbeat's own thread, and at times that no replay repeats.
_HEARTBEAT = frozenset({"workers.heartbeat", "messages.extend"})
# Questions write nothing, so a death beside one is a death at the boundary before it; and how often an idle worker
# asks is chance.
_QUESTIONS = frozenset(
    {
        "claims.some_are_lost",
        "messages.is_visible",
        "messages.next_due",
        "runs.get",
        "runs.several",
        "schedules.look",
        "workflows.get",
        "workflows.with_prefixes",
    }
)
_CASE = re.compile(r"(?:(kill|stall) )?(before|after) ([\w.]+)(?:#(\d+))?")


class Boundary(NamedTuple):
    """A store call that the worker makes, the side of it, and which time that is."""

    phase: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.phase} {self.name}#{self.number}"


class Case(NamedTuple):
    """One crash: in which way, and where."""

    mode: Mode
    boundary: Boundary

    def __str__(self) -> str:
        return f"{self.mode} {self.boundary}"

    @classmethod
    def of(cls, text: str) -> Case:
        """As it is printed: `kill after settlement.commit#2`."""
        found = _CASE.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} names no crash", hint="say it as the report does: kill after settlement.commit#2"
            )
        mode, phase, name, number = found.groups()
        return cls("stall" if mode == "stall" else "kill", Boundary(phase, name, int(number or 1)))


class CrashInjector:
    """An action for `pgqrs.faults`: counts the boundaries of one worker, and strikes at one of them.

    alive -> struck (its calls hang, as those of a process that does not run) -> dead (they fail), or awake again.
    """

    def __init__(self, at: Boundary | None = None, *, strike: Callable[[], None] | None = None) -> None:
        self.at = at
        self.seen: list[Boundary] = []
        self.counts: Counter[Point] = Counter()
        self.struck: asyncio.Event = asyncio.Event()
        self.is_struck: bool = False
        self.is_dead: bool = False
        # True while something else than the workflow writes through its worker.
        self.is_looking_away: Callable[[], bool] = bool
        self._strike = strike
        self._hanging: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._in_flight = 0
        # Whoever stands still does nothing more, but its database carries out what it was asked: so that comes first.
        self.at_rest: asyncio.Event = asyncio.Event()
        self.at_rest.set()
        self._lock = threading.Lock()

    def began(self) -> None:
        if current_fate.get() is self:
            self._in_flight += 1
            self.at_rest.clear()

    def ended(self) -> None:
        if current_fate.get() is self:
            self._in_flight -= 1
            if not self._in_flight:
                self.at_rest.set()

    def __call__(self, point: Point) -> Awaitable[None] | None:
        if point.phase == "sql":
            return None
        if point.name in _HEARTBEAT:
            if self.is_struck:
                raise ConnectionFailed("the worker is struck: no lease of it is renewed")
            return None
        if current_fate.get() is not self or self.is_looking_away():
            return None
        with self._lock:
            if self.is_dead:
                raise ConnectionFailed("the worker was killed: it writes nothing any more")
            if faults.call_under_way():
                # A part of a transaction: nothing is durable there, and whoever is stopped there still has its locks.
                return None
            if not self.is_struck and point.name not in _QUESTIONS and self._is_the_one(point):
                self.is_struck = True
                if self._strike is not None:
                    return self._struck_for_real(self._strike)
                self.struck.set()
            return self._hang() if self.is_struck else None

    def _is_the_one(self, point: Point) -> bool:
        self.counts[point] += 1
        boundary = Boundary(point.phase, point.name, self.counts[point])
        self.seen.append(boundary)
        return boundary == self.at

    async def _struck_for_real(self, strike: Callable[[], None]) -> None:
        await self.at_rest.wait()
        strike()
        # What comes back from it was only stopped.
        self.wake()

    def _hang(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._hanging.append((loop, future))
        return future

    def bury(self) -> None:
        """What hangs fails now, and so does whatever is asked from now on: its tasks come to an end."""
        self._release(ConnectionFailed("the worker was killed"), is_dead=True)

    def wake(self) -> None:
        """It goes on where it stood, and knows nothing of what happened meanwhile."""
        self._release(None, is_dead=False)

    def _release(self, error: Exception | None, *, is_dead: bool) -> None:
        with self._lock:
            self.is_dead = is_dead
            self.is_struck = False
            self.at = None
            hanging, self._hanging = self._hanging, []
        for loop, future in hanging:
            loop.call_soon_threadsafe(_settle, future, error)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        # Whoever waited for it may have been cancelled meanwhile.
        future.exception()
