"""A program as a test that stands alone, with the handler that it is in Python's own words above it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from proof.programs.grammar import (
    Ask,
    Block,
    Child,
    Emit,
    ErrorHas,
    ErrorIs,
    Fails,
    First,
    Flip,
    Gather,
    Gives,
    Group,
    Hangs,
    Hold,
    If,
    Join,
    LastIs,
    Loop,
    Map,
    Pause,
    Pool,
    Program,
    Progress,
    Race,
    Raise,
    Reraise,
    Return,
    Sleep,
    Start,
    Step,
    Transact,
    Try,
    TryGroup,
    Wait,
)


def as_test(program: Program, fault: str, *, on: str, name: str, said: list[str], is_racy: bool = False) -> str:
    """Source for a file in tests/: it fails as long as the divergence is there."""
    comment = "\n".join(f"    # {line}" for line in handler(program))
    reasons = "\n".join(f"    # {each[:110]}" for each in said[:3])
    return (
        "from proof.programs.grammar import *  # noqa: F403\n"
        "from proof.programs.single import check\n\n\n"
        f"def test_{name}():\n{comment}\n    #\n{reasons}\n"
        f"    check({compact(program)}, {fault!r}, on={on!r}{', is_racy=True' if is_racy else ''})\n"
    )


def compact(node: Any) -> str:
    """As `repr`, without what is the default."""
    if isinstance(node, tuple):
        inside = ", ".join(map(compact, node))
        return f"({inside},)" if len(node) == 1 else f"({inside})"
    if not dataclasses.is_dataclass(node):
        return repr(node)
    given = []
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.default is dataclasses.MISSING:
            given.append(compact(value))
        elif value != field.default:
            given.append(f"{field.name}={compact(value)}")
    return f"{type(node).__name__}({', '.join(given)})"


# -- in Python's own words ---------------------------------------------------------------------------------------


def handler(program: Program) -> Iterator[str]:
    words = _Words(program)
    yield f"{'' if program.plain else 'async '}def handler(ctx):  # max_attempts={program.attempts}"
    yield from words.block(program.body, 1)


class _Words:
    def __init__(self, program: Program) -> None:
        self._await = "" if program.plain else "await "

    def block(self, block: Block, depth: int) -> Iterator[str]:
        if not block:
            yield f"{'    ' * depth}pass"
        for statement in block:
            for line in self._statement(statement):
                yield f"{'    ' * depth}{line}"

    def _inner(self, block: Block) -> Iterator[str]:
        yield from self.block(block, 1)

    def _statement(self, node: Any) -> Iterator[str]:
        name = f"_{type(node).__name__.lower()}"
        if hasattr(self, name):
            yield from getattr(self, name)(node)
        else:
            yield f"{self._doing(node)}  # {node.name}"

    def _doing(self, node: Any) -> str:  # noqa: C901, PLR0911 - a table of kinds has a return for each
        match node:
            case Step():
                options = f", retry=RetryPolicy({node.retry})" if node.retry else ""
                options += ", timeout=0.02" if isinstance(node.body, Hangs) else ""
                body = f"{'def' if node.plain else 'async'} body {_body(node.body)}{', emits' if node.emits else ''}"
                return f"{self._await}ctx.step({node.called or node.name!r}, <{body}>{options})"
            case Transact():
                return (
                    f"{self._await}ctx.transaction({node.called or node.name!r}, <insert, then {_body(node.body)}>)"
                )
            case Emit() | Progress():
                return f"{self._await}ctx.{type(node).__name__.lower()}(...)"
            case Ask():
                return f"{self._await}ctx.{node.what}()"
            case Sleep():
                return f"{self._await}ctx.sleep({node.seconds:g})"
            case Wait():
                timeout = f", timeout={node.timeout:g}" if node.timeout else ""
                return f"{self._await}ctx.wait_for({node.name!r}{timeout})  # sent: {node.sent};"
            case Pause(how="pause"):
                return f"{self._await}ctx.pause('asks')  # answered: {node.value!r};"
            case Pause():
                return f"{self._await}ctx.step('asks', <raises PauseError, then {node.how}: {node.value!r}>)"
            case Child():
                child = "; ".join(line.strip() for line in self.block(node.program.body, 0))
                return f"{self._await}<child{' (is cancelled)' if node.cancelled else ''}: {child}>.result()"
            case Map():
                children = " | ".join(
                    "; ".join(line.strip() for line in self.block(each.body, 0)) for each in node.programs
                )
                return f"{self._await}ctx.map(<{children}>, limit={node.limit})"
            case First():
                return f"{self._await}ctx.first(...)"
            case _:
                return repr(node)

    def _if(self, node: If) -> Iterator[str]:
        yield f"if {_test(node.test)}:"
        yield from self._inner(node.then)
        if node.otherwise:
            yield "else:"
            yield from self._inner(node.otherwise)

    def _flip(self, node: Flip) -> Iterator[str]:
        yield "if random.random() < 0.5:"
        yield from self._inner(node.then)
        yield "else:"
        yield from self._inner(node.otherwise)

    def _loop(self, node: Loop) -> Iterator[str]:
        yield f"for _ in range({node.times}):"
        yield from self._inner(node.body)
        if node.until is not None:
            yield f"    if {_test(node.until)}: break"

    def _try(self, node: Try) -> Iterator[str]:
        yield "try:"
        yield from self._inner(node.body)
        for each in node.catches:
            yield f"except {_kinds(each.kinds)} as error:"
            yield from self._inner(each.body)
        for word, block in (("else", node.otherwise), ("finally", node.final)):
            if block:
                yield f"{word}:"
                yield from self._inner(block)

    def _trygroup(self, node: TryGroup) -> Iterator[str]:
        yield "try:"
        yield from self._inner(node.body)
        yield f"except* {_kinds(node.catch.kinds)} as error:"
        yield from self._inner(node.catch.body)
        if node.final:
            yield "finally:"
            yield from self._inner(node.final)

    def _raise(self, node: Raise) -> Iterator[str]:
        cause = {"": "", "from": " from error", "cause": " from error.__cause__", "other": " from KeyError()"}
        yield f"raise <{node.kind} {node.number}>{cause[node.chained]}"

    def _reraise(self, _node: Reraise) -> Iterator[str]:
        yield "raise"

    def _return(self, _node: Return) -> Iterator[str]:
        yield "return seen"

    def _gather(self, node: Gather) -> Iterator[str]:
        options = ", return_exceptions=True" if node.return_exceptions else ""
        yield f"{self._await}{node.how}.gather(<the branches below>{options})  # {node.name}"
        yield from self._branches(node.branches)

    def _group(self, node: Group) -> Iterator[str]:
        yield f"async with asyncio.TaskGroup() as group:  # {node.name}, one task for each branch below"
        yield from self._branches(node.branches)

    def _branches(self, branches: tuple[Block, ...]) -> Iterator[str]:
        for number, branch in enumerate(branches, 1):
            yield f"    # branch {number}"
            yield from self._inner(branch)

    def _pool(self, node: Pool) -> Iterator[str]:
        yield f"# {node.name}: {node.workers} tasks of a TaskGroup take the branches below from an asyncio.Queue"
        yield from self._branches(node.branches)

    def _race(self, node: Race) -> Iterator[str]:
        way = "asyncio.as_completed" if node.how == "each" else "asyncio.wait, FIRST_COMPLETED"
        ends = ", and cancels the others" if node.how == "first" and node.ends else ""
        yield f"# {node.name}: a task for each branch below; {way}{ends}"
        yield from self._branches(node.branches)

    def _hold(self, node: Hold) -> Iterator[str]:
        yield f"async with lock:  # {node.name}"
        yield from self._inner(node.body)

    def _start(self, node: Start) -> Iterator[str]:
        yield f"{node.name} = asyncio.create_task(<the branch below>)"
        yield from self._inner(node.body)

    def _join(self, node: Join) -> Iterator[str]:
        yield f"await {node.name}"


def _kinds(kinds: tuple[str, ...]) -> str:
    return ", ".join(kinds) or "Exception"


def _body(body: Any) -> str:
    match body:
        case Gives(value):
            return f"returns {value!r}"
        case Fails():
            often = "" if body.times is None else f" {body.times} times, then returns {body.value!r}"
            return f"raises <{body.kind} {body.number}>{' from another' if body.caused else ''}{often}"
        case _:
            return "hangs"


def _test(test: Any) -> str:
    match test:
        case LastIs(value):
            return f"last == {value!r}"
        case ErrorHas(attribute, value):
            return f"getattr(error, {attribute!r}, None) == {value!r}"
        case ErrorIs(kind):
            return f"isinstance(error, <{kind}>)"
        case _:
            return repr(test)
