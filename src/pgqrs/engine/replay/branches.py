"""Branches: which part of a handler is asking, however its tasks are scheduled.

A handler that uses `asyncio.gather`, `TaskGroup` or `create_task` runs in several tasks. Each is a branch, numbered
by the order in which its parent *created* it, so a replay with other timing gives every step the same id. A task
factory on the event loop does the numbering; outside a handler it does nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import sys
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple, Self

from pgqrs.db.runs.history import Emission
from pgqrs.retry import RetryPolicy
from pgqrs.text import step_ids

current_branch: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("pgqrs_branch", default=None)


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

# The error that the code which began this task or thread was handling: there `sys.exc_info` does not show it.
handled_error: contextvars.ContextVar[BaseException | None] = contextvars.ContextVar("pgqrs_handled", default=None)


class Branch:
    """One task of a handler: its path (`""` for the handler itself, `2`, `2.1`), and what it has asked for so far."""

    def __init__(self, path: str, among: BranchSet, parent: Branch | None) -> None:
        self.path = path
        self.parent = parent
        self.counts: dict[str, int] = {}
        self.ordinal = 0
        self.children = 0
        # Tasks of coroutines that `asyncio.as_completed` has not asked for yet, by the coroutines' ids.
        self.made: dict[int, asyncio.Future[Any]] = {}
        # True when chance has numbered it: see `_order_in_as_completed`.
        self.is_unordered = False
        # Has it ever asked the context for something; is it waiting for something that may take days.
        self.engaged = False
        self.blocked = 0
        # The thread in which a part of a plain handler runs; None in an async one.
        self.thread: int | None = None
        # True while a plain handler waits here for the threads of its branches.
        self.joining = False
        self.task: asyncio.Future[Any] | None = None
        # What it ended with, when it raised.
        self.error: BaseException | None = None
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

    def ancestors(self) -> Iterator[Branch]:
        """Its parent, and that one's, up to the handler itself."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    def outwaited(self) -> None:
        """The time of an `asyncio.wait` for it is up."""
        self._among.outwaited()

    def is_engaged(self) -> bool:
        """True when it, or a branch of it that lives, has asked the context for something."""
        return self.engaged or any(each.engaged and self in each.ancestors() for each in self._among.live)

    def end(self, task: asyncio.Future[Any] | None = None) -> None:
        if task is not None and not task.cancelled():
            self.error = task.exception()
        self._among.live.pop(self, None)
        self._among.stirring.pop(self, None)
        self._among.changed()

    def park(self) -> None:
        """It waits for the engine, and so does not move: only what may move is looked at again and again."""
        # Also one that was given what another branch has asked for.
        self.engaged = True
        # A task of another class does not say when it is cancelled, which moves it.
        if isinstance(self.task, BranchTask):
            self._among.stirring.pop(self, None)

    def unpark(self) -> None:
        if self in self._among.live:
            self._among.stirring[self] = None

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

    __slots__ = ("_is_async", "changed", "live", "outwaited", "root", "stirring")

    def __init__(self, changed: Callable[[], None], *, outwaited: Callable[[], None], is_async: bool) -> None:
        # Called when one of them has ended.
        self.changed = changed
        # Called when the time of an `asyncio.wait` for one of them is up.
        self.outwaited = outwaited
        self._is_async = is_async
        self.live: dict[Branch, None] = {}
        # Those that do not wait for the engine.
        self.stirring: dict[Branch, None] = {}
        self.root = Branch("", self, None)

    @property
    def is_single(self) -> bool:
        """True when nothing but its own end can end a step of the handler: it has one branch, and no thread."""
        return len(self.live) == 1 and self._is_async

    @property
    def has_several(self) -> bool:
        """True when results have an order that the handler sees: threads come in none."""
        return len(self.live) > 1 and self._is_async

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
        self.changed = self.outwaited = _nothing
        self.live.clear()
        self.stirring.clear()
        if isinstance(self.root.task, BranchTask):
            self.root.task.branch = None


def _nothing() -> None:
    """Ends late, and changes nothing."""


# Where `asyncio.as_completed` makes tasks: Python 3.13 has a class for it.
_AS_COMPLETED = frozenset(
    getattr(function, "__code__", None)
    for function in (
        asyncio.as_completed,
        getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "__init__", None),
    )
) - {None}
# Between that and the task factory: a comprehension, `ensure_future`, `create_task`, other factories.
_MOST_FRAMES = 8


def _order_in_as_completed(coro: object) -> Sequence[Any] | None:
    """What `as_completed` was given when it makes a task of this coroutine; empty when that has no order."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code in _AS_COMPLETED:
            given = frame.f_locals.get("fs", frame.f_locals.get("aws"))
            return given if isinstance(given, list | tuple) and any(each is coro for each in given) else ()
        frame = frame.f_back
    return None


# Where asyncio's deadlines cancel a task: `asyncio.timeout`, and Python 3.11's `wait_for` the task that it has made.
_TIMERS = frozenset(
    getattr(function, "__code__", None)
    for function in (getattr(asyncio.Timeout, "_on_timeout", None), getattr(asyncio.tasks, "_cancel_and_wait", None))
) - {None}


# Where `asyncio.wait` waits.
_WAIT = getattr(getattr(asyncio.tasks, "_wait", None), "__code__", None)

# True in the task in which asyncio closes an async generator that was left before its end.
is_left_generator: contextvars.ContextVar[bool] = contextvars.ContextVar("pgqrs_left_generator", default=False)


def handled_here() -> BaseException | None:
    """The error whose `except`, `finally` or `with` block asks; also in tasks and threads that such a block began."""
    error = sys.exc_info()[1]
    # An error may be false: one with a `__len__` that counts nothing.
    return handled_error.get() if error is None else error


class BranchTask(asyncio.Task[Any]):
    """A task of a handler that knows whether a deadline has cancelled it.

    asyncio keeps tasks in sets: `TaskGroup` cancels, and `asyncio.wait` returns, in the order of their hashes. By
    address it would be another order in every pass, so tasks hash by their number. The salt lies above the bits by
    which a set of one run is ordered, and keeps the runs of a process apart in the set of all tasks.
    """

    timed_out = False
    branch: Branch | None = None

    def __init__(self, coro: Coroutine[Any, Any, Any], *, of: Branch | None = None, **options: Any) -> None:
        # Before asyncio puts it into a set.
        self._hash = object.__hash__(self) if of is None else (of.salt << 40) | of.number
        if of is not None:
            # One that is to start eagerly runs here until it waits.
            of.run_in(self)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._hash

    def cancel(self, msg: Any | None = None) -> bool:
        if self.branch is not None:
            self.branch.unpark()
        is_deadline = _is_deadline(sys._getframe(1))  # noqa: SLF001 - there is no other way
        self.timed_out = self.timed_out or is_deadline
        return super().cancel(msg)

    def uncancel(self) -> int:
        left = super().uncancel()
        if not left:
            # The block with the deadline was left: the next cancellation is another matter.
            self.timed_out = False
        return left

    def add_done_callback(self, callback: Callable[[Self], object], **options: Any) -> None:
        if self.branch is not None:
            self._look_for_a_timer(sys._getframe(1))  # noqa: SLF001 - there is no other way
        super().add_done_callback(callback, **options)

    def _look_for_a_timer(self, frame: FrameType) -> None:
        """`asyncio.wait(timeout=)` cancels nothing when its time is up: what it waits for then is told of that."""
        if frame.f_code is not _WAIT:
            return
        timer, waiter = frame.f_locals.get("timeout_handle"), frame.f_locals.get("waiter")
        if timer is not None and waiter is not None:
            waiter.add_done_callback(lambda _waiter: None if timer.cancelled() else self._outwaited())

    def _outwaited(self) -> None:
        if self.branch is not None and self.branch.is_engaged() and not self.done():
            self.branch.outwaited()


# Where a task that waits for another one, or for a `gather`, passes on that it is cancelled.
_CANCEL = BranchTask.cancel.__code__
_GATHERED: Any = getattr(asyncio.tasks, "_GatheringFuture", asyncio.Future)
_CANCEL_GATHERED = getattr(_GATHERED.cancel, "__code__", None)


def _is_deadline(frame: FrameType | None) -> bool:
    """Whether a task is cancelled here because its time is up: by asyncio, or by a scope of anyio's.

    Or because that of the task is up which waits for it: from Python 3.12 on `wait_for` cancels that one.
    """
    while frame is not None and frame.f_code is _CANCEL_GATHERED:
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_code is _CANCEL:
        return bool(frame.f_locals["is_deadline"])
    if frame.f_code in _TIMERS:
        # Python 3.11's `wait_for` also ends its task when it is cancelled itself, and with it the future it awaits.
        waiter = None if frame.f_back is None else frame.f_back.f_locals.get("waiter")
        return waiter is None or not waiter.cancelled()
    if frame.f_code.co_name != "_deliver_cancellation":
        return False
    scope = frame.f_locals.get("origin", frame.f_locals.get("self"))
    return bool(getattr(scope, "deadline", math.inf) < math.inf)


# An application may have set it. Python 3.12 is the first that has it.
_EAGER: Any = getattr(asyncio, "eager_task_factory", None)


class _TaskFactory:
    """Makes the tasks of an event loop: one that begins in a branch is a branch of it."""

    __pgqrs__ = True

    def __init__(self, inner: Callable[..., asyncio.Future[Any]] | None) -> None:
        # One that was there before goes on making the tasks.
        self._inner = inner

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        context = options.pop("context", None)
        parent = current_branch.get() if context is None else context.get(current_branch)
        if type(coro).__name__ == "async_generator_athrow":
            # The garbage collector closes a generator of some other run, at any moment: it is no branch of this one.
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(is_left_generator.set, True)  # noqa: FBT003 - a variable's value
            return self._task(loop, coro, None, context, options)
        order = None if parent is None else _order_in_as_completed(coro)
        if parent is None or not order or context is not None:
            child = None if parent is None else parent.child(is_unordered=order == ())
            return self._task(loop, coro, child, context, options)
        if id(coro) not in parent.made:
            # It asks for them in the order of a set: all of them begin here, in the order of its list.
            for each in order:
                if asyncio.iscoroutine(each) and id(each) not in parent.made:
                    parent.made[id(each)] = self._task(loop, each, parent.child(), None, options)
        return parent.made.pop(id(coro))

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        child: Branch | None,
        context: contextvars.Context | None,
        options: dict[str, Any],
    ) -> asyncio.Future[Any]:
        """A task of this branch; of none, it may still come to execute a handler."""
        if child is not None:
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(current_branch.set, child)
            if (error := handled_here()) is not None:
                context.run(handled_error.set, error)
        given = options if context is None else {**options, "context": context}
        task: asyncio.Future[Any]
        if self._inner is None:
            task = BranchTask(coro, of=child, loop=loop, **given)
        elif self._inner is _EAGER:
            # Those of handlers do not start eagerly: a worker without this factory may replay the run.
            task = BranchTask(coro, of=child, loop=loop, **{"eager_start": child is None, **given})
        else:
            task = self._inner(loop, coro, **given)
        if child is not None:
            child.run_in(task)
            task.add_done_callback(child.end)
        return task


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Idempotent."""
    inner = loop.get_task_factory()
    if not getattr(inner, "__pgqrs__", False):
        loop.set_task_factory(_TaskFactory(inner))  # type: ignore[arg-type]


def outside(coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task of the engine's own, or a step's body: part of no branch."""
    context = contextvars.copy_context()
    context.run(current_branch.set, None)
    return asyncio.get_running_loop().create_task(coro, context=context)
