"""Branches: which part of a handler is asking, however its tasks are scheduled.

A handler that uses `asyncio.gather`, `TaskGroup` or `create_task` runs in several tasks. Each is a branch, numbered
by the order in which its parent *created* it, so a replay with other timing gives every step the same id. The task
factory of the event loop makes them (`task_factory.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Container, Iterator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from pgqrs.db.runs.history import Emission
from pgqrs.engine.replay.branch_state import BranchState, may_follow
from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.retry import RetryPolicy
from pgqrs.text import step_ids

if TYPE_CHECKING:
    from pgqrs.engine.replay.run_pass import RunPass

current_branch: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("pgqrs_branch", default=None)
# The context that the handler was given: that of a plain one is another class with the same verbs.
current_context: contextvars.ContextVar[Any] = contextvars.ContextVar("pgqrs_context", default=None)


# Few enough bits for a hash, and more than runs that a process executes at the same time.
_SALTS = itertools.cycle(range(2**22))


class BranchPlace(NamedTuple):
    """Where a step stands: its id, and its ordinal within its branch."""

    step_id: str
    ordinal: int


class StepCall(NamedTuple):
    """One call of `ctx.step`."""

    place: BranchPlace
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # None: the run's own attempts decide.
    retry: RetryPolicy | None
    timeout: float | None


# The step whose body this is, its attempt, and what it has emitted: that is published if, and only if, the step is
# recorded. None outside of steps. A step that a step's body calls is a part of it, and a plain call.
current_body: contextvars.ContextVar[tuple[BranchPlace, int, list[Emission]] | None] = contextvars.ContextVar(
    "pgqrs_body", default=None
)


def in_body() -> bool:
    """True in the body of a workflow, which each replay runs again, and outside of its steps."""
    return current_context.get() is not None and current_body.get() is None


# The error that the code which began this task or thread was handling: there `sys.exc_info` does not show it.
handled_error: contextvars.ContextVar[BaseException | None] = contextvars.ContextVar("pgqrs_handled", default=None)


class Branch:
    """One task of a handler: its path (`""` for the handler itself, `2`, `2.1`), and what it has asked for so far."""

    def __init__(self, path: str, among: BranchSet, parent: Branch | None) -> None:
        self.path = path
        self.parent = parent
        self.counts: dict[str, int] = {}
        self.ordinal: int = 0
        self.children: int = 0
        # Tasks of coroutines that `asyncio.as_completed` has not asked for yet, by the coroutines' ids.
        self.made: dict[int, asyncio.Future[Any]] = {}
        # True when chance has numbered it: see `_order_in_as_completed`.
        self.is_unordered = False
        self.state: BranchState = BranchState.RUNNING
        # How many waits it is in: threads that a plain handler starts by itself all wait in its own branch.
        self._waits = 0
        # Has it ever asked the context for something.
        self.engaged: bool = False
        # The thread in which a part of a plain handler runs; None in an async one.
        self.thread: int | None = None
        # For how many threads of its branches a plain handler waits here.
        self.joining = 0
        self.task: asyncio.Future[Any] | None = None
        # What it ended with, when it raised.
        self.error: BaseException | None = None
        # The error that it was about to get from what it waited for, when it was cancelled.
        self.missed: BaseException | None = None
        # The call of `gather` that waits for it, and whether that gives the handler its error as a value.
        self.gathered_in: object = None
        self.is_collected: bool = False
        self._among = among
        # Its place among the branches of its parent. What tells the runs of a process apart, see `BranchTask`.
        self.number = 0
        self.salt: int = next(_SALTS) if parent is None else parent.salt
        among.live[self] = among.stirring[self] = None

    def child(self, *, is_unordered: bool = False) -> Branch:
        is_unordered = is_unordered or self.is_unordered
        if not is_unordered:
            self.children += 1
        # One that chance would number asks for nothing, and must not move the numbers of the others.
        number = 0 if is_unordered else self.children
        path = f"{self.path}.{number}" if self.path else str(number)
        made = Branch(path, self._among, self)
        made.number = number
        made.is_unordered = is_unordered
        return made

    def run_in(self, task: asyncio.Future[Any] | None) -> None:
        """It is executed by this task."""
        self.task = task
        if isinstance(task, BranchTask):
            task.branch = self

    def is_among(self, branches: BranchSet) -> bool:
        return self._among is branches

    def ancestors(self) -> Iterator[Branch]:
        """Its parent, and that one's, up to the handler itself."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    def outwait(self) -> None:
        """The time of an `asyncio.wait` for it is up."""
        if (run_pass := self._among.run_pass()) is not None:
            run_pass.outwaited()

    def time_out(self) -> None:
        """A deadline of asyncio's is about to cancel it."""
        if (run_pass := self._among.run_pass()) is not None:
            run_pass.timed_out(self)

    def may_have_asked(self) -> bool:
        """True when it has asked the context for something, or has not had its first turn, and may be about to."""
        asked = self.task.get_coro() if isinstance(self.task, asyncio.Task) else None
        is_new = isinstance(asked, CoroutineType) and inspect.getcoroutinestate(asked) == inspect.CORO_CREATED
        return self.engaged or is_new

    def is_engaged(self) -> bool:
        """True when it, or a branch of it that lives, may have asked the context for something."""
        return self.may_have_asked() or any(
            each.may_have_asked() and self in each.ancestors() for each in self._among.live
        )

    def is_halted(self) -> bool:
        """True when its pass is over before its end."""
        run_pass = self._among.run_pass()
        return run_pass is not None and run_pass.lease.is_halted()

    def is_heard(self) -> bool:
        """True when the handler has got its error from its task, as by `await` or `task.exception()`."""
        # asyncio keeps it, to tell of errors that nothing ever asked for.
        return self.task is not None and not getattr(self.task, "_log_traceback", False)

    def end(self, task: asyncio.Future[Any] | None = None) -> None:
        if task is not None and not task.cancelled():
            self.error = getattr(task, "_exception", None)
            if self.error is not None:
                self._among.note_error(task)
        self._become(BranchState.ENDED)
        if (run_pass := self._among.run_pass()) is not None:
            run_pass.branches_changed()

    def end_thread(self) -> None:
        """As `end`, of a thread that its parent waits for: from now on that one can go on, though it may not yet."""
        if self.parent is not None:
            self.parent.joining -= 1
        self.end()

    def park(self) -> None:
        """It waits for the engine, and so does not move: only what may move is looked at again and again."""
        # Also one that was given what another branch has asked for.
        self.engaged = True
        # A task of another class does not say when it is cancelled, which moves it.
        if isinstance(self.task, BranchTask):
            self._become(BranchState.PARKED)

    def unpark(self) -> None:
        """It was given its result, or is cancelled."""
        if self.state is BranchState.PARKED:
            self._become(BranchState.RUNNING)

    def begin_wait(self) -> None:
        """It comes to a wait that may take days."""
        self.engaged = True
        self._waits += 1
        self._become(BranchState.WAITING)

    def end_wait(self) -> None:
        """The pass ends, or the handler has given the wait up."""
        self._waits -= 1
        if not self._waits:
            self._become(BranchState.RUNNING)

    def _become(self, state: BranchState) -> None:
        """The one place where the state changes; what may not follow, as anything after its end, is not heard."""
        if not may_follow(state, self.state):
            return
        self.state = state
        if state is BranchState.ENDED:
            self._among.live.pop(self, None)
        if state is BranchState.RUNNING or state is BranchState.WAITING:
            self._among.stirring[self] = None
        else:
            self._among.stirring.pop(self, None)

    def place(self, name: str) -> BranchPlace:
        """The id and the ordinal of the next step of that name: `fetch`, `fetch#2`, `fetch@1`, `fetch@1#2`."""
        ordinal = self.ordinal
        self.ordinal = ordinal + 1
        return BranchPlace(self.place_unordered(name), ordinal)

    def place_unordered(self, name: str) -> str:
        self.engaged = True
        step_id = self.next_id(name)
        self.counts[name] = self.counts.get(name, 0) + 1
        return step_id

    def next_id(self, name: str) -> str:
        """The id that the next step of that name will have."""
        return step_ids.write(name, self.path, self.counts.get(name, 0) + 1)


class BranchSet:
    """The branches of one pass that have not ended: its handler, and the tasks or threads that the handler began."""

    __slots__ = ("_failed", "_is_async", "live", "root", "run_pass", "stirring")

    def __init__(self, run_pass: RunPass) -> None:
        # Gives None when the pass is over. Weak: a pass is gone then, and not when the garbage is collected.
        self.run_pass: Callable[[], RunPass | None] = weakref.ref(run_pass)
        self._is_async = run_pass.handler.is_async
        # Tasks that ended with an error; None when the pass is over.
        self._failed: tuple[asyncio.Future[Any], ...] | None = ()
        self.live: dict[Branch, None] = {}
        # Those that do not wait for the engine.
        self.stirring: dict[Branch, None] = {}
        self.root: Branch = Branch("", self, None)

    @property
    def is_single(self) -> bool:
        """True when nothing but its own end can end a step of the handler: it has one branch, and no thread."""
        return len(self.live) == 1 and self._is_async

    @property
    def has_several(self) -> bool:
        """True when results have an order that the handler sees: threads come in none."""
        return len(self.live) > 1 and self._is_async

    def note_error(self, task: asyncio.Future[Any]) -> None:
        """Until the pass is over it is of interest whether the handler asks for it."""
        if self._failed is None:
            task.exception()
        else:
            self._failed += (task,)

    def cancel(self, but: Container[object] = ()) -> list[asyncio.Future[Any]]:
        """The handler's tasks, but for its own."""
        tasks = [
            branch.task
            for branch in self.live
            if branch.task is not None and branch is not self.root and branch.task not in but
        ]
        for task in tasks:
            task.cancel()
        return tasks

    def close(self) -> None:
        """From now on the end of a branch concerns no one."""
        failed, self._failed = self._failed or (), None
        for task in failed:
            # asyncio would log that nothing ever asked for its error; the run's history tells of it.
            task.exception()
        self.run_pass = _no_pass
        self.live.clear()
        self.stirring.clear()
        if isinstance(self.root.task, BranchTask):
            self.root.task.branch = None
        self.root.task = None
        # It refers back: without this, only the garbage collector would free the two, and the handler's task.
        del self.root


def _no_pass() -> None:
    """Ends late, and changes nothing."""


# True in the task in which asyncio closes an async generator that was left before its end.
is_left_generator: contextvars.ContextVar[bool] = contextvars.ContextVar("pgqrs_left_generator", default=False)


def handled_here() -> BaseException | None:
    """The error whose `except`, `finally` or `with` block asks; also in tasks and threads that such a block began."""
    error = sys.exc_info()[1]
    # An error may be false: one with a `__len__` that counts nothing.
    return handled_error.get() if error is None else error
