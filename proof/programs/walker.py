"""Executes a program: its statements become Python's own `try`, `gather` and `TaskGroup`; what it does, its verbs do.

The same walk runs on the engine (`handlers.py`) and in the oracle (`oracle.py`). In a plain handler the coroutine is
driven to its end without an event loop: there every verb is done when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from proof.programs import errors
from proof.programs.grammar import (
    Ask,
    Block,
    Catch,
    Doing,
    ErrorHas,
    ErrorIs,
    Flip,
    Gather,
    Group,
    Hold,
    If,
    Join,
    LastIs,
    Loop,
    Pool,
    Program,
    Race,
    Raise,
    Reraise,
    Return,
    Start,
    Statement,
    Test,
    Try,
    TryGroup,
)
from proof.programs.logs import ANY, CUT, Observation, Pass


class Returned(NamedTuple):
    value: Any


@dataclass(slots=True)
class Frame:
    """One branch of a handler: where it is, and what it knows."""

    path: str = ""
    loop: tuple[int, ...] = ()
    last: Any = None
    error: BaseException | None = None
    seen: list[str] = field(default_factory=list)
    # Effects that have happened before, as far as the program orders them. Only the oracle asks.
    known: set[str] = field(default_factory=set)
    tasks: dict[str, tuple[asyncio.Task[Any], Frame]] = field(default_factory=dict)
    forks: int = 0
    # The errors in whose `except` and `finally` blocks it is, innermost last. Only the oracle asks.
    handling: tuple[BaseException, ...] = ()
    # True when something that no `except Exception` sees goes through: the engine's signal, a cancellation.
    is_unwinding: bool = False
    # How often each name was asked for here. Only the oracle asks.
    counts: dict[str, int] = field(default_factory=dict)

    def key(self, name: str) -> str:
        return name + "".join(f"[{i}]" for i in self.loop)

    def fork(self) -> Frame:
        self.forks += 1
        path = f"{self.path}.{self.forks}" if self.path else str(self.forks)
        return Frame(
            path,
            self.loop,
            error=self.error,
            known=set(self.known),
            handling=self.handling,
            is_unwinding=self.is_unwinding,
        )

    def joined(self, *others: Frame) -> None:
        for other in others:
            self.known |= other.known


class Verbs(Protocol):
    """What a program can ask for."""

    def do(self, node: Doing, key: str, frame: Frame) -> Awaitable[Any]: ...

    def gather(
        self, branches: list[Callable[[], Coroutine[Any, Any, Any]]], node: Gather
    ) -> Awaitable[list[Any]]: ...

    def chance(self) -> bool:
        """Nobody records it."""
        ...

    def is_leaving(self) -> bool:
        """True when the engine has ended the pass: what a `finally` still sees comes in no order."""
        ...


class Walk:
    """One pass over one program."""

    def __init__(self, program: Program, verbs: Verbs, log: Pass, label: str) -> None:
        self._program = program
        self._verbs = verbs
        self._log = log
        self._label = label
        # Branches whose end the handler has waited for.
        self.joined: set[str] = {""}
        self.main = Frame()
        self.loose: list[asyncio.Task[Any]] = []
        self._lock = asyncio.Lock()
        # How many have held the lock.
        self._held = 0

    async def run(self) -> Any:
        done = await self._block(self._program.body, self.main)
        return done.value if isinstance(done, Returned) else list(self.main.seen)

    # -- in order ----------------------------------------------------------------------------------------

    async def _block(self, block: Block, frame: Frame) -> Any:
        for statement in block:
            done = await self._one(statement, frame)
            if done is not None:
                return done
        return None

    async def _one(self, statement: Statement, frame: Frame) -> Any:
        execute = getattr(self, f"_{type(statement).__name__.lower()}", self._do)
        return await execute(statement, frame)

    async def _if(self, node: If, frame: Frame) -> Any:
        return await self._block(node.then if _holds(node.test, frame) else node.otherwise, frame)

    async def _flip(self, node: Flip, frame: Frame) -> Any:
        return await self._block(node.then if self._verbs.chance() else node.otherwise, frame)

    async def _raise(self, node: Raise, frame: Frame) -> None:
        error = errors.make(node.kind, node.number)
        if node.chained and frame.error is not None:
            raise error from _cause(node.chained, frame.error)
        raise error

    async def _reraise(self, _node: Reraise, frame: Frame) -> None:
        if frame.error is not None:
            raise frame.error

    async def _return(self, _node: Return, frame: Frame) -> Returned:
        return Returned(list(frame.seen))

    async def _do(self, node: Doing, frame: Frame) -> None:
        key = frame.key(node.name)
        await self._observed(frame, key, self._verbs.do(node, key, frame), hidden=isinstance(node, Ask))

    async def _observed(self, frame: Frame, key: str, work: Awaitable[Any], *, hidden: bool = False) -> None:
        try:
            value = await work
        except Exception as error:
            self._note(frame, Observation(key, error=errors.seen(error)))
            raise
        # Only a `finally` sees the signals with which the engine ends branches, as values of a lenient gather.
        is_cut = frame.is_unwinding and _holds_signals(value)
        value = _plain(value, cut=is_cut)
        self._note(frame, Observation(key, value), is_cut=is_cut)
        frame.last = type(value).__name__ if hidden else value
        frame.seen.append(f"{key}={ANY if hidden else _short(value)}")

    def _note(self, frame: Frame, observation: Observation, *, is_cut: bool = False) -> None:
        self._log.add(frame.path, observation, is_cut=is_cut, is_leaving=self._verbs.is_leaving())

    async def _loop(self, node: Loop, frame: Frame) -> Any:
        outer = frame.loop
        try:
            for number in range(node.times):
                frame.loop = (*outer, number)
                done = await self._block(node.body, frame)
                if done is not None:
                    return done
                if node.until is not None and _holds(node.until, frame):
                    break
        finally:
            frame.loop = outer
        return None

    async def _try(self, node: Try, frame: Frame) -> Any:
        outer = frame.handling
        try:
            try:
                done = await self._block(node.body, frame)
            except _classes(node.catches) as error:
                caught = next(each for each in node.catches if isinstance(error, _classes((each,))))
                return await self._handle(caught, error, frame)
            if done is not None:
                return done
            return await self._block(node.otherwise, frame)
        except Exception as error:
            frame.handling = (*outer, error)
            raise
        except BaseException:
            frame.is_unwinding = True
            raise
        finally:
            # As in Python: it runs on every way out, and an error of its own takes the place of the other.
            try:
                await self._block(node.final, frame)
            finally:
                frame.handling = outer

    async def _handle(self, caught: Catch, error: BaseException, frame: Frame) -> Any:
        outer, frame.error = frame.error, error
        around, frame.handling = frame.handling, (*frame.handling, error)
        frame.seen.append(f"caught {type(error).__name__}")
        try:
            return await self._block(caught.body, frame)
        finally:
            frame.error, frame.handling = outer, around

    async def _trygroup(self, node: TryGroup, frame: Frame) -> Any:
        done: Any = None
        outer = frame.handling
        try:
            try:
                done = await self._block(node.body, frame)
            except* _classes((node.catch,)) as group:
                await self._handle(node.catch, group, frame)
        except Exception as error:
            frame.handling = (*outer, error)
            raise
        except BaseException:
            frame.is_unwinding = True
            raise
        finally:
            try:
                await self._block(node.final, frame)
            finally:
                frame.handling = outer
        return done

    # -- side by side ------------------------------------------------------------------------------------

    def _branch(self, block: Block, frame: Frame) -> Coroutine[Any, Any, Any]:
        async def walked() -> Any:
            done = await self._block(block, frame)
            return done.value if isinstance(done, Returned) else list(frame.seen)

        return walked()

    async def _gather(self, node: Gather, frame: Frame) -> None:
        frames = [frame.fork() for _ in node.branches]
        key = frame.key(node.name)

        async def together() -> Any:
            branches = [
                lambda block=block, own=own: self._branch(block, own)
                for block, own in zip(node.branches, frames, strict=True)
            ]
            try:
                results = await self._verbs.gather(branches, node)
            except Exception:
                if self._program.plain:
                    # All of them have come to their end by then.
                    self._join_frames(frame, frames)
                raise
            self._join_frames(frame, frames)
            return results

        await self._observed(frame, key, together())

    async def _group(self, node: Group, frame: Frame) -> None:
        frames = [frame.fork() for _ in node.branches]

        async def together() -> list[Any]:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._branch(block, own))
                    for block, own in zip(node.branches, frames, strict=True)
                ]
            self._join_frames(frame, frames)
            return [task.result() for task in tasks]

        await self._observed(frame, frame.key(node.name), together())

    async def _start(self, node: Start, frame: Frame) -> None:
        own = frame.fork()
        task = asyncio.create_task(self._branch(node.body, own))
        # Nobody may ever ask for its error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.loose.append(task)
        frame.tasks[node.name] = (task, own)

    async def _join(self, node: Join, frame: Frame) -> None:
        if node.name not in frame.tasks:
            return
        task, own = frame.tasks.pop(node.name)

        async def awaited() -> Any:
            try:
                return await task
            finally:
                if task.done() and not task.cancelled():
                    self._join_frames(frame, [own])

        await self._observed(frame, frame.key(f"join {node.name}"), awaited())

    # -- where the order of results matters --------------------------------------------------------------

    async def _pool(self, node: Pool, frame: Frame) -> None:
        frames = [frame.fork() for _ in range(node.workers)]
        key = frame.key(node.name)
        queue: asyncio.Queue[int] = asyncio.Queue()
        for number in range(len(node.branches)):
            queue.put_nowait(number)

        async def work(own: Frame) -> Any:
            taken = 0
            while not queue.empty():
                number = queue.get_nowait()
                self._noted(own, f"{key}/{taken}", number)
                taken += 1
                done = await self._block(node.branches[number], own)
                if done is not None:
                    return done.value
            return list(own.seen)

        async def together() -> list[Any]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(own)) for own in frames]
            self._join_frames(frame, frames)
            return [task.result() for task in tasks]

        await self._observed(frame, key, together())

    async def _race(self, node: Race, frame: Frame) -> None:
        frames = [frame.fork() for _ in node.branches]
        # Tasks of our own: `as_completed` makes those of coroutines in the order of a set.
        tasks = [
            asyncio.create_task(self._branch(block, own)) for block, own in zip(node.branches, frames, strict=True)
        ]
        for task in tasks:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.loose += tasks

        async def together() -> list[Any]:
            results = await (_each(tasks) if node.how == "each" else _first(tasks, ends=node.ends))
            self._join_frames(frame, [own for task, own in zip(tasks, frames, strict=True) if task.done()])
            return results

        await self._observed(frame, frame.key(node.name), together())

    async def _hold(self, node: Hold, frame: Frame) -> Any:
        async with self._lock:
            self._held += 1
            self._noted(frame, frame.key(node.name), self._held - 1)
            return await self._block(node.body, frame)

    def _noted(self, frame: Frame, key: str, value: Any) -> None:
        """What the branch was given by another, and not by the engine."""
        self._note(frame, Observation(key, value))
        frame.last = value
        frame.seen.append(f"{key}={value}")

    def _join_frames(self, frame: Frame, frames: list[Frame]) -> None:
        frame.joined(*frames)
        self.joined |= {each.path for each in frames}


async def _first(tasks: list[asyncio.Task[Any]], *, ends: bool) -> list[Any]:
    """The number of the first task to end, and what it gave."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    number = min(number for number, task in enumerate(tasks) if task in done)
    if ends:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return [number, tasks[number].result()]


async def _each(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """What they gave, in the order in which they ended."""
    return [await following for following in asyncio.as_completed(tasks)]


def _holds(test: Test, frame: Frame) -> bool:
    match test:
        case LastIs(value):
            return frame.last == value
        case ErrorHas(attribute, value):
            return getattr(_single(frame.error), attribute, None) == value
        case ErrorIs(kind):
            return isinstance(_single(frame.error), errors.CLASSES[kind])


def _single(error: BaseException | None) -> BaseException | None:
    """Of a group with one part, that part."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _classes(catches: tuple[Catch, ...]) -> tuple[type[Exception], ...]:
    return tuple(errors.CLASSES[kind] for each in catches for kind in (each.kinds or ("Exception",)))


def _plain(value: Any, *, cut: bool) -> Any:
    """Errors in the results of a gather, as they are seen; what JSON cannot hold, as text."""
    if cut and _is_signal(value):
        return CUT
    if isinstance(value, BaseException):
        return errors.seen(value)
    if isinstance(value, list | tuple):
        return [_plain(each, cut=cut) for each in value]
    return value


def _holds_signals(value: Any) -> bool:
    return any(map(_holds_signals, value)) if isinstance(value, list | tuple) else _is_signal(value)


def _is_signal(value: Any) -> bool:
    return isinstance(value, BaseException) and not isinstance(value, Exception)


def _short(value: Any) -> str:
    """For the handler's result: of errors only their class, as the engine makes some texts."""
    if isinstance(value, errors.Seen):
        return value.kind.rpartition(".")[2]
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """In a plain handler: nothing in it ever waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    work.close()
    raise AssertionError("a plain handler awaited something")


def _cause(chained: str, handled: BaseException) -> BaseException | None:
    match chained:
        case "cause":
            return handled.__cause__
        case "other":
            return KeyError("another error")
        case _:
            return handled
