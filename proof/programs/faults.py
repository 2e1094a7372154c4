"""What strikes, and where: `kill@7` is a kill at the seventh boundary that the worker reaches.

    kill      the worker stops dead, nothing of it is ever heard again; another takes over after its lease
    stall     it stands still until another has finished, then goes on; its own clock stood still meanwhile
    freeze    the same, but its own clock has jumped when it goes on
    overlap   the same, but it goes on as soon as another has taken over
    outage    the database is away for longer than `retry_seconds`, for a call or for several in a row
    lost      a call was carried out, and its reply is lost, as after an outage that began in that moment
    reset     the same, but the connection comes back at once: the driver asks again (PostgreSQL)
    cancel    somebody cancels the run
    answer    everything that is paused is answered then, and not when nothing else is left to do
    restart   no boundary: when it has failed, the world is healed and the run is restarted

A boundary is a store call that the worker makes, from its own side: `before` it is made, `after` its reply has come.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pgqrs
from pgqrs import faults
from pgqrs.faults import Point

AROUND = ("kill", "stall", "freeze", "overlap", "cancel", "answer")
# By mode: in which phases of a call it means something.
PHASES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(AROUND, ("before", "after")),
    "outage": ("before",),
    "lost": ("after",),
    "reset": ("reply",),
}
# For how many calls in a row the database is away: a short one, and longer than a lease.
OUTAGES = (1, 2, 6)
# What an idle worker asks, as often as chance will have it; and what its heartbeat does.
_IDLE = frozenset(
    {
        "claims.some_are_lost",
        "claims.end_lost",
        "messages.is_visible",
        "messages.next_due",
        "schedules.look",
        "workflows.with_prefixes",
        "workers.heartbeat",
        "messages.extend",
    }
)
_TEXT = re.compile(r"(\w+)(?:@(\d+)(?:x(\d+))?)?")

current_fate: contextvars.ContextVar[Fate | None] = contextvars.ContextVar("proof_fate", default=None)


class Dead(BaseException):
    """The worker was killed: its code goes no further. Nothing catches it."""


@dataclass(frozen=True, slots=True)
class Fault:
    mode: str
    nth: int = 0
    # Of an outage: for how many calls.
    calls: int = 1

    @classmethod
    def of(cls, text: str) -> Fault:
        found = _TEXT.fullmatch(text)
        if found is None or found[1] not in (*PHASES, "restart", "none"):
            raise ValueError(f"not a fault: {text!r}; write it as kill@7, outage@3x6 or restart")
        return cls(found[1], int(found[2] or 0), int(found[3] or 1))

    def __str__(self) -> str:
        if not self.nth:
            return self.mode
        return f"{self.mode}@{self.nth}" + (f"x{self.calls}" if self.calls > 1 else "")

    @property
    def costs_an_attempt(self) -> bool:
        return self.mode not in ("none", "restart", "cancel", "answer")


class Fate:
    """What happens to one worker. An action of `pgqrs.faults` for the tasks that carry it in their context."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.counts: Counter[str] = Counter()
        self.points: list[Point] = []
        self.struck = asyncio.Event()
        self.struck_at = ""
        self.is_dead = False
        # Called, and awaited, when somebody else than the worker has to do something.
        self.on_cancel: Callable[[], Awaitable[None]] | None = None
        self.on_answer: Callable[[], Awaitable[None]] | None = None
        self.on_claim: Callable[[], None] | None = None
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.is_stalled = False
        self._failing = 0
        self._hanging: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    def reached(self, point: Point) -> Awaitable[None] | None:
        if point.phase in ("sql", "commit") or (point.phase != "reply" and faults.call_under_way()):
            return None
        if self.is_dead or self.is_stalled:
            return None if point.phase == "reply" else self.hang()
        return None if point.name in _IDLE else self._counted(point)

    def _counted(self, point: Point) -> Awaitable[None] | None:
        if self.on_claim is not None and point == ("after", "claims.claim"):
            self.on_claim()
        with self._lock:
            self.points.append(point)
            self.counts[point.phase] += 1
            if self._failing and point.phase == "before":
                return self._away()
            fault = self.fault
            if fault is None or self.struck.is_set() or point.phase not in PHASES.get(fault.mode, ()):
                return None
            if sum(self.counts[phase] for phase in PHASES[fault.mode]) != fault.nth:
                return None
            self.struck_at = str(point)
            self.struck.set()
        return self._strike(fault)

    def _strike(self, fault: Fault) -> Awaitable[None] | None:
        match fault.mode:
            case "kill":
                self.is_dead = True
                return self.hang()
            case "stall" | "freeze" | "overlap":
                self.is_stalled = True
                return self.hang()
            case "outage":
                self._failing = fault.calls
                return self._away()
            case "lost":
                raise pgqrs.ConnectionFailed("injected: the reply was lost", ambiguous=True)
            case "reset":
                raise ConnectionResetError("injected: the reply was lost")
            case "answer":
                assert self.on_answer is not None
                return self.on_answer()
            case _:
                assert self.on_cancel is not None
                return self.on_cancel()

    def _away(self) -> None:
        self._failing -= 1
        # A call gives up when it has tried for this long.
        away(10.0)
        raise pgqrs.ConnectionFailed("injected: the database is away")

    def hang(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._hanging.append((loop, future))
        return future

    def wake(self) -> None:
        """Who was stalled goes on where it stood."""
        self.is_stalled = False
        hanging, self._hanging = self._hanging, []
        for loop, future in hanging:
            loop.call_soon_threadsafe(lambda future=future: future.done() or future.set_result(None))


def strike(point: Point) -> Awaitable[None] | None:
    """The action: it concerns the worker whose code reaches the point."""
    fate = current_fate.get()
    return None if fate is None else fate.reached(point)


# -- time --------------------------------------------------------------------------------------------------------

_real_monotonic = time.monotonic
_jumped = 0.0
_clocks: list[pgqrs.ManualClock] = []


def away(seconds: float) -> None:
    """So much time passes, on the database's clock and on this process's own."""
    for clock in _clocks:
        clock.advance(seconds)
    jump(seconds)


def jump(seconds: float) -> None:
    """So much time passes on this process's own clock."""
    global _jumped  # noqa: PLW0603 - there is one clock
    _jumped += seconds


@contextmanager
def own_time(clock: pgqrs.ManualClock) -> Iterator[None]:
    """While the block runs this process's clock can be made to jump."""
    time.monotonic = lambda: _real_monotonic() + _jumped
    _clocks.append(clock)
    try:
        yield
    finally:
        _clocks.remove(clock)
        time.monotonic = _real_monotonic


async def within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """TimeoutError after so many seconds of real time: timers of this process may jump."""
    task = asyncio.ensure_future(work)
    deadline = _real_monotonic() + seconds
    while not task.done():
        left = deadline - _real_monotonic()
        if left <= 0:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise TimeoutError
        await asyncio.wait([task], timeout=left)
    task.result()


def track_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on every task is known to the fate of the worker that made it: a killed worker's are ended with it.

    Around the engine's own factory, which makes tasks of a class of its own.
    """
    inner = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = asyncio.Task(coro, loop=loop, **options) if inner is None else inner(loop, coro, **options)
        context = options.get("context")
        fate = current_fate.get() if context is None else context.get(current_fate)
        if fate is not None:
            fate.tasks.add(task)
        return task

    # The engine looks for its own before it installs another.
    factory.__pgqrs__ = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)  # type: ignore[arg-type]
