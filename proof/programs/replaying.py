"""Replays one pass of a handler in memory: the same results in the same order, and no engine.

What the handler makes of them (which branch takes the next item, holds the lock, fails first, is cancelled; what it
returns) follows from the program and from that order alone. So the pass must have come to the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from pgqrs import errors as ours
from proof.programs import errors, virtual
from proof.programs.errors import Seen, by_engine
from proof.programs.grammar import (
    Ask,
    Body,
    Child,
    Doing,
    Fails,
    First,
    Gather,
    Hangs,
    Map,
    Pause,
    Program,
    Progress,
    Step,
    Transact,
    Wait,
    parts,
)
from proof.programs.logs import Observation, Pass
from proof.programs.memory import raised_by
from proof.programs.walker import Frame, Walk


class Impossible(Exception):
    """The program cannot have come to what the pass observed."""


def replayed(program: Program, given: Pass) -> Pass:
    """Return the pass that these results lead to. Raises Impossible where the program does not ask for one."""
    return cast("Pass", virtual.run(_replayed(program, given)))


async def _replayed(program: Program, given: Pass) -> Pass:
    log = Pass()
    verbs = _Verbs()
    names = {node.name for node in parts(program) if isinstance(node, Doing) and not isinstance(node, Progress)}
    task = asyncio.ensure_future(_walked(Walk(program, verbs, log, ""), log))
    for path, observation in given.order:
        await _quiet()
        if observation.key.partition("[")[0] in names:
            verbs.give(path, observation)
    await _quiet()
    if task.done():
        task.result()
    return log


async def _walked(walk: Walk, log: Pass) -> None:
    """As on the engine, nothing is noted any more when the handler has come to its end."""
    try:
        result = await walk.run()
    except Impossible:
        raise
    except Exception as error:  # noqa: BLE001 - a handler may raise anything
        log.end, log.gave = "raised", Observation("", error=errors.seen(error))
    else:
        log.end, log.gave = "returned", Observation("", result)


async def _quiet() -> None:
    """Until nothing can move: the loop has no one else to run."""
    ready: Any = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if not ready._ready:
            return


class _Verbs:
    """Whatever the handler asks for waits until it is given."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], asyncio.Future[Observation]] = {}

    def chance(self) -> bool:
        return True

    def is_leaving(self) -> bool:
        return False

    async def gather(self, branches: list[Callable[[], Coroutine[Any, Any, Any]]], node: Gather) -> list[Any]:
        return await asyncio.gather(*(branch() for branch in branches), return_exceptions=node.return_exceptions)

    async def do(self, node: Doing, key: str, frame: Frame) -> Any:
        if isinstance(node, Progress):
            # No branch waits for it.
            return None
        future = asyncio.get_running_loop().create_future()
        self._waiting[frame.path, key] = future
        try:
            return made(node, await future)
        finally:
            del self._waiting[frame.path, key]

    def give(self, path: str, observation: Observation) -> None:
        future = self._waiting.get((path, observation.key))
        if future is None or future.done():
            where = f"branch {path}" if path else "the handler"
            raise Impossible(f"{where} saw {observation}, and does not wait for that after what came before")
        future.set_result(observation)


def made(node: Doing, observation: Observation) -> Any:
    """What the statement gives: the value, or the error, that the observation says it was."""
    if observation.error is not None:
        raise _error(node, observation.error)
    match node:
        case Step() | Transact():
            return node.body.value
        case Wait() | First() if not (isinstance(node, Wait) and node.sent == "never"):
            return node.value if isinstance(node, Wait) else [node.winner, node.value]
        case Pause():
            return node.value
        case Map():
            values = observation.value if isinstance(observation.value, list) else []
            return [_ended(node, each) if isinstance(each, Seen) else each for each in values]
        case Ask() | Child():
            return observation.value
        case _:
            return None


def _error(node: Doing, seen: Seen) -> Exception:
    match node:
        case Step() | Transact():
            return _error_of(node.body, seen)
        case Wait(sent="never"):
            return by_engine(ours.WaitTimeout("in vain"), node.name)
        case Child() | Map():
            return _ended(node, seen)
        case _:
            raise Impossible(f"{node.name} raised {seen}, and never does")


def _error_of(body: Body, seen: Seen) -> Exception:
    match body:
        case Fails():
            return raised_by(body)
        case Hangs():
            return by_engine(TimeoutError(), "timeout")
        case _:
            raise Impossible(f"a body that raises nothing raised {seen}")


def _ended(node: Doing, seen: Seen) -> Exception:
    """How the child ended, as its parent sees it."""
    kind = seen.kind.rpartition(".")[2]
    if kind == "RunCancelled":
        return by_engine(ours.RunCancelled(0), node.name)
    if kind == "ExecutionFailed":
        return by_engine(ours.ExecutionFailed(0, ""), node.name)
    raise Impossible(f"{node.name} raised {seen}, and no child ends so")
