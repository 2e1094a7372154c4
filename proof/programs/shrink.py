"""Makes a failing program small: statements are taken away, and simplified, as long as it fails in the same way."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from proof.programs.grammar import Catch, Child, Fails, Gives, Program, Raise, Step, Wait, size

# In which place of a statement blocks stand; what they hold can take the place of the statement itself.
_BLOCKS = ("body", "then", "otherwise", "final")


def shrunk(program: Program, fails: Callable[[Program], bool], *, seconds: float = 30.0) -> Program:
    """The smallest program found within that time for which `fails` still holds."""
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(program):
            if time.monotonic() > deadline:
                return program
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller; those that are much smaller first."""
    found = sorted(_smaller(program), key=weight)
    seen = set()
    for each in found:
        if weight(each) < weight(program) and repr(each) not in seen:
            seen.add(repr(each))
            yield each


def weight(program: Program) -> tuple[int, int]:
    """What is to become less: statements that do something, then everything else."""
    return size(program), len(repr(program))


def _smaller(node: Any) -> Iterator[Any]:
    """The node with one thing in it taken away or made simpler."""
    yield from _simpler(node)
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for other in _smaller_value(value):
            try:
                yield dataclasses.replace(node, **{field.name: other})
            except TypeError:
                continue


def _smaller_value(value: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _smaller(value)
        return
    if not isinstance(value, tuple):
        return
    for index, each in enumerate(value):
        before, after = value[:index], value[index + 1 :]
        if dataclasses.is_dataclass(each):
            yield (*before, *after)
            # What stands in a child or in an `except` stands nowhere else.
            for block in () if isinstance(each, Program | Catch) else _inside(each):
                yield (*before, *block, *after)
        if dataclasses.is_dataclass(each) or isinstance(each, tuple):
            for other in _smaller_value(each):
                yield (*before, other, *after)
        if isinstance(each, tuple) and len(value) > 1:
            # One branch of several.
            yield (*before, *after)


def _inside(node: Any) -> Iterator[tuple[Any, ...]]:
    """Blocks that could stand in the place of the statement."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if isinstance(block, tuple):
            yield block
    yield from (*getattr(node, "branches", ()), *(catch.body for catch in getattr(node, "catches", ())))
    if isinstance(node, Child) and not node.cancelled:
        yield node.program.body


def _simpler(node: Any) -> Iterator[Any]:
    match node:
        case Step():
            for change in ({"retry": 0}, {"plain": False}, {"emits": False}, {"called": "step"}, {"body": Gives()}):
                yield dataclasses.replace(node, **change)
        case Fails():
            for change in ({"kind": "value"}, {"times": None}, {"caused": False}, {"number": 1}, {"value": 1}):
                yield dataclasses.replace(node, **change)
        case Gives():
            yield Gives()
        case Raise():
            yield Raise()
        case Wait(timeout=float()) if node.sent != "never":
            yield dataclasses.replace(node, timeout=None)
        case Program():
            yield dataclasses.replace(node, plain=False)
            yield dataclasses.replace(node, attempts=1)
