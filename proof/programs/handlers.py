"""Programs on the engine: one workflow for each kind of handler, whatever the program.

A run's input names its case and its label; the program is found in this process. Bodies write into the case's ledger,
and each pass over a handler into a log of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any

import pgqrs
from pgqrs.engine.replay.branches import current_context
from proof.programs.errors import seen
from proof.programs.faults import Dead, Fate, current_fate
from proof.programs.grammar import (
    Ask,
    Body,
    Child,
    Doing,
    Emit,
    First,
    Gather,
    Hangs,
    Map,
    Pause,
    Program,
    Progress,
    Sleep,
    Step,
    Transact,
    Wait,
)
from proof.programs.logs import Effect, Ledger, Observation, Pass
from proof.programs.memory import failure
from proof.programs.walker import Frame, Walk, drive

ASYNC, PLAIN = "programs.async", "programs.plain"
# Long enough for a body that does not hang, short enough to wait for one that does.
_TIMEOUT = 0.02
# For one that hangs no more: other things happen on this machine.
_GENEROUS = 30.0
_HANGS = 0.06
TABLE = "proof_rows"

CASES: dict[str, Case] = {}
_numbers = itertools.count(1)


class Case:
    """One execution of a program: what it leaves behind outside of the database."""

    def __init__(
        self, program: Program, *, schema: str = "", makes_table: bool = False, is_racy: bool = False
    ) -> None:
        self.ident = str(next(_numbers))
        self.program = program
        self.ledger = Ledger()
        self.healed = False
        # By the label of the run: its program, and the passes over its handler.
        self.programs: dict[str, Program] = {"": program}
        self.passes: dict[str, list[Pass]] = {}
        # Labels of runs that are to be cancelled when they wait.
        self.doomed: set[str] = set()
        # Steps that pause until their run is resumed, and whose run was: by label and key.
        self.resumed: set[tuple[str, str]] = set()
        self.table = f'"{schema}".{TABLE}' if schema else TABLE
        # In a database that nobody has prepared.
        self.makes_table = makes_table
        # Another attempt may come to a statement by another way, and in another branch: a child there is another one.
        self.is_racy = is_racy
        self.flips = 0
        CASES[self.ident] = self

    def close(self) -> None:
        del CASES[self.ident]

    def forget(self) -> None:
        """As if nothing had happened yet."""
        self.ledger = Ledger()
        self.passes.clear()

    def given(self, label: str) -> str:
        """The input of the run with that label."""
        return f"{self.ident}|{label}"

    def label_of_child(self, label: str, key: str, path: str) -> str:
        return f"{label}/{key}" + (f"@{path}" if self.is_racy and path else "")

    def begun(self, label: str) -> Pass:
        log = _Log(current_fate.get())
        self.passes.setdefault(label, []).append(log)
        return log


class _Log(Pass):
    """Of a worker that was killed nothing is heard any more."""

    def __init__(self, fate: Fate | None) -> None:
        super().__init__()
        self._fate = fate

    def add(self, path: str, observation: Observation, *, is_cut: bool = False, is_leaving: bool = False) -> None:
        if self._fate is None or not self._fate.is_dead:
            super().add(path, observation, is_cut=is_cut, is_leaving=is_leaving)

    def ended(self, how: str, gave: Observation | None) -> None:
        if self._fate is None or not self._fate.is_dead:
            self.end = how
            self.gave = gave


async def handle(ctx: Any, given: str) -> Any:
    ident, _, label = given.partition("|")
    return await _walked(ctx, CASES[ident], label)


def handle_plain(ctx: Any, given: str) -> Any:
    ident, _, label = given.partition("|")
    return drive(_walked(ctx, CASES[ident], label))


@pgqrs.workflow(name="programs.nested")
async def nested(given: str) -> Any:
    """A workflow that other workflows call as a function: its run is a child of theirs."""
    return await handle(current_context.get(), given)


NESTED = nested.name
HANDLERS = {ASYNC: handle, PLAIN: handle_plain, NESTED: nested}


def program_handler(case: Case) -> Any:
    """A handler of its own for the program of the case."""
    if case.program.plain:

        def program(ctx: Any) -> Any:
            return drive(_walked(ctx, case, ""))

        return program

    async def program_(ctx: Any) -> Any:
        return await _walked(ctx, case, "")

    return program_


def workflow_of(program: Program) -> str:
    return PLAIN if program.plain else ASYNC


async def _walked(ctx: Any, case: Case, label: str) -> Any:
    log = case.begun(label)
    # A plain handler's context has the other one inside.
    log.token = getattr(ctx, "_context", ctx)._run_pass.claim.lease.lease_token
    program = case.programs[label]
    verbs = _Verbs(ctx, case, label, program)
    try:
        result = await Walk(program, verbs, log, label).run()
    except Exception as error:
        log.ended("raised", None if verbs.is_leaving() else Observation("", error=seen(error)))
        raise
    log.ended("returned", None if verbs.is_leaving() else Observation("", result))
    return result


class _Verbs:
    """What a program asks for, as verbs of the context."""

    def __init__(self, ctx: Any, case: Case, label: str, program: Program) -> None:
        self._ctx = ctx
        self._case = case
        self._label = label
        self._plain = program.plain
        # A plain handler's context has the other one inside.
        self._run_pass = getattr(ctx, "_context", ctx)._run_pass

    def chance(self) -> bool:
        self._case.flips += 1
        return self._case.flips % 2 == 0

    def is_leaving(self) -> bool:
        return bool(self._run_pass.is_unwinding)

    async def gather(self, branches: list[Callable[[], Coroutine[Any, Any, Any]]], node: Gather) -> list[Any]:
        options = {"return_exceptions": True} if node.return_exceptions else {}
        if self._plain:
            here = [lambda branch=branch: drive(branch()) for branch in branches]
            return list(self._ctx.gather(*here, **options))
        gather = asyncio.gather if node.how == "asyncio" else self._ctx.gather
        return list(await gather(*(branch() for branch in branches), **options))

    async def do(self, node: Doing, key: str, frame: Frame) -> Any:
        return await getattr(self, f"_{type(node).__name__.lower()}")(node, key, frame)

    async def _transact(self, node: Transact, key: str, frame: Frame) -> Any:
        return await _done(self._ctx.transaction(node.called or key, self._work(node.body, key, frame)))

    async def _emit(self, node: Emit, key: str, _frame: Frame) -> Any:
        return await _done(self._ctx.emit(f"proof.{node.name}", f"{self._label}:{key}"))

    async def _progress(self, _node: Progress, key: str, _frame: Frame) -> Any:
        return await _done(self._ctx.progress(int(key[1:].partition("[")[0])))

    async def _ask(self, node: Ask, _key: str, _frame: Frame) -> Any:
        return repr(await _done(getattr(self._ctx, node.what)()))

    async def _sleep(self, node: Sleep, _key: str, _frame: Frame) -> Any:
        return await _done(self._ctx.sleep(node.seconds))

    async def _wait(self, node: Wait, key: str, _frame: Frame) -> Any:
        return await _done(self._ctx.wait_for(signal_name(key), timeout=node.timeout))

    async def _pause(self, node: Pause, key: str, _frame: Frame) -> Any:
        if node.how == "pause":
            return await _done(self._ctx.pause(f"asks {key}"))
        case, label = self._case, self._label

        def ask() -> Any:
            _end_if_dead()
            if (label, key) in case.resumed:
                return node.given
            raise pgqrs.PauseError(f"asks {key}")

        return await _done(self._ctx.step(paused_name(key), ask))

    # -- children ----------------------------------------------------------------------------------------

    async def _child(self, node: Child, key: str, frame: Frame) -> Any:
        given = self._born(key, frame, node.program, cancelled=node.cancelled)
        if node.how == "call":
            return await nested(given)
        child = await _done(self._ctx.spawn(workflow_of(node.program), given))
        return await _done(child.result())

    async def _map(self, node: Map, key: str, frame: Frame) -> Any:
        given = [self._born(f"{key}.{number}", frame, program) for number, program in enumerate(node.programs)]
        options = {"return_exceptions": True} if node.return_exceptions else {}
        # One workflow for all of them, whose handlers are not plain.
        return await _done(self._ctx.map(ASYNC, given, limit=node.limit, **options))

    async def _first(self, node: First, key: str, _frame: Frame) -> Any:
        def contender(number: int) -> Any:
            if number != node.winner:
                return self._ctx.wait_for(f"never.{signal_name(key)}.{number}")
            if node.how == "pause":
                return self._ctx.pause(f"asks {key}")
            return self._ctx.sleep(60) if node.how == "sleep" else self._ctx.wait_for(signal_name(key))

        calls = [functools.partial(contender, number) for number in range(node.contenders)]
        winner = await _done(self._ctx.first(*(calls if self._plain else (call() for call in calls))))
        return [winner.key, winner.value]

    def _born(self, key: str, frame: Frame, program: Program, *, cancelled: bool = False) -> str:
        """The input of a child, which finds its program in this process."""
        label = self._case.label_of_child(self._label, key, frame.path)
        self._case.programs[label] = program
        if cancelled:
            self._case.doomed.add(label)
        return self._case.given(label)

    # -- bodies ------------------------------------------------------------------------------------------

    def _begin(self, key: str, frame: Frame) -> int:
        return self._case.ledger.begin(Effect(f"{self._label}:{key}", f"{self._label}:{frame.path}"))

    async def _step(self, node: Step, key: str, frame: Frame) -> Any:
        options: dict[str, Any] = {}
        if node.retry:
            options["retry"] = pgqrs.RetryPolicy(max_attempts=node.retry)
        if isinstance(node.body, Hangs):
            options["timeout"] = _GENEROUS if self._case.healed else _TIMEOUT
        body = self._plain_body(node, key, frame) if node.plain else self._async_body(node, key, frame)
        return await _done(self._ctx.step(node.called or key, body, **options))

    def _async_body(self, node: Step, key: str, frame: Frame) -> Callable[[], Awaitable[Any]]:
        async def body() -> Any:
            await _stop_if_dead()
            error = self._failure(node.body, key, frame)
            if isinstance(node.body, Hangs) and error is not None:
                await asyncio.sleep(3600)
            if node.emits:
                await self._ctx.emit(f"proof.{node.name}", f"{self._label}:{key}")
            _raise(error)
            return node.body.value

        return body

    def _plain_body(self, node: Step, key: str, frame: Frame) -> Callable[[], Any]:
        def body() -> Any:
            _end_if_dead()
            error = self._failure(node.body, key, frame)
            if isinstance(node.body, Hangs) and error is not None:
                time.sleep(_HANGS)
                return node.body.value
            if node.emits:
                self._ctx.emit(f"proof.{node.name}", f"{self._label}:{key}")
            _raise(error)
            return node.body.value

        return body

    def _work(self, body: Body, key: str, frame: Frame) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        row = self._case.given(f"{self._label}:{key}")

        async def work(tx: Any) -> Any:
            _end_if_dead()
            error = self._failure(body, key, frame)
            if self._case.makes_table:
                await tx.execute(f"create table if not exists {TABLE} (row_key text not null)")
            # It holds nothing that a statement would have to escape.
            await tx.execute(f"insert into {self._case.table} (row_key) values ('{row}')")
            _raise(error)
            return body.value

        return work

    def _failure(self, body: Body, key: str, frame: Frame) -> Callable[[], Exception] | None:
        return failure(body, self._begin(key, frame), healed=self._case.healed)


def _raise(error: Callable[[], Exception] | None) -> None:
    if error is not None:
        raise error()


async def _done(result: Any) -> Any:
    """A verb of a plain context is done when it returns."""
    return await result if inspect.isawaitable(result) else result


async def _stop_if_dead() -> None:
    fate = current_fate.get()
    if fate is not None and fate.is_dead:
        await fate.hang()


def _end_if_dead() -> None:
    fate = current_fate.get()
    if fate is not None and fate.is_dead:
        raise Dead


def signal_name(key: str) -> str:
    """Of the `wait_for` with that key."""
    return key.replace("[", ".").replace("]", "")


def paused_name(key: str) -> str:
    """Of the step that pauses under that key."""
    return f"asks {key}"


def own_context(fate: Fate) -> Any:
    """The context of a worker with that fate: its tasks and threads take it over."""
    context = copy_context()
    context.run(current_fate.set, fate)
    return context
