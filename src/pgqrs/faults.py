"""Named points at which a test may kill, fail or stall the program; free when nothing is armed.

Five kinds of point, told apart by phase:

    before   a store call is about to be made              messages.lease
    after    it has been made, nobody knows yet            messages.lease
    sql      a statement is about to be sent               lease_messages
    commit   a transaction is about to be committed        messages.lease; all, where it is not of one call
    reply    it is carried out, its reply is on the way    messages.lease (PostgreSQL: elsewhere nothing can get lost)

Production code asks `if faults.armed:` first, one attribute look-up, and only then calls `reach`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

Phase = Literal["before", "after", "sql", "commit", "reply"]


class Point(NamedTuple):
    phase: Phase
    name: str

    def __str__(self) -> str:
        return f"{self.phase} {self.name}"


# An action may raise, end the process or block its thread; before and after, it may return something to await.
Action = Callable[[Point], Awaitable[None] | None]


@runtime_checkable
class FaultWatcher(Protocol):
    """An action that also wants to know when store calls are being carried out; told in the task that makes them."""

    def began(self) -> None: ...

    def ended(self) -> None: ...


armed: bool = False
_actions: list[Action] = []
# The store call under way in this task or thread, while something is armed.
_call: ContextVar[str] = ContextVar("pgqrs_call", default="")
# The library's connection that a statement is about to be sent on: an action may want to break it.
connection: ContextVar[Any] = ContextVar("pgqrs_connection", default=None)


@contextmanager
def injected(action: Action) -> Iterator[None]:
    """While the block runs, `action` is called with each point that is reached, in any thread."""
    global armed  # noqa: PLW0603 - one switch, so that the unarmed cost is one look-up
    _actions.append(action)
    armed = True
    try:
        yield
    finally:
        _actions.remove(action)
        armed = bool(_actions)


@contextmanager
def recorded() -> Iterator[list[Point]]:
    """The points that are reached while the block runs, in order."""
    points: list[Point] = []
    with injected(points.append):
        yield points


def at(phase: Phase, name: str, do: Callable[[], Awaitable[None] | None], *, times: int = 1) -> Action:
    """An action that calls `do` the first `times` times this point is reached."""
    left = times

    def action(point: Point) -> Awaitable[None] | None:
        nonlocal left
        if point == (phase, name) and left > 0:
            left -= 1
            return do()
        return None

    return action


@contextmanager
def under_way(name: str) -> Iterator[None]:
    """While the block runs, this store call is what is being done."""
    everybody: list[object] = [] if _call.get() else [*_actions]
    watchers = [each for each in everybody if isinstance(each, FaultWatcher)]
    token = _call.set(name)
    for watcher in watchers:
        watcher.began()
    try:
        yield
    finally:
        _call.reset(token)
        for watcher in watchers:
            watcher.ended()


def call_under_way() -> str:
    """Which store call an action was reached in; empty between two of them. Calls that it is made of are it."""
    return _call.get()


async def reach(phase: Phase, name: str) -> None:
    """Called around each store call, on the caller's side."""
    point = Point(phase, name)
    for action in tuple(_actions):
        waiting = action(point)
        if waiting is not None:
            await waiting


def reach_sql(name: str, on: Any = None) -> None:
    """Called before each statement, possibly in a database thread: nothing can be awaited here."""
    _reach_now(Point("sql", name), on)


def reach_commit(on: Any) -> None:
    """Called before each commit, as `reach_sql`."""
    _reach_now(Point("commit", _call.get() or "all"), on)


def reach_reply(on: Any) -> None:
    """Called when a call is carried out and committed, and nobody knows: what is raised here is a lost reply."""
    _reach_now(Point("reply", _call.get() or "all"), on)


def _reach_now(point: Point, on: Any) -> None:
    token = connection.set(on)
    try:
        for action in tuple(_actions):
            action(point)
    finally:
        connection.reset(token)
