"""Small random workflows: deterministic ones, and the same with one seeded non-determinism."""

import asyncio
import functools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pgqrs

NAMES = ("a", "b", "c")
# Each differs from pass to pass in another way.
FAULTS = ("name", "argument", "result", "order", "extra")


@pgqrs.workflow
async def generated_child(ctx: pgqrs.PyWorkflow, number: int) -> int:
    """Succeed, after a while if the number is odd; fail for negative numbers."""
    if number < 0:
        raise pgqrs.PermanentError(f"{number} is negative")
    if number % 2:
        await ctx.sleep(number)
    return await ctx.step("double", lambda: 2 * number)


class Op(NamedTuple):
    """One thing that a handler does."""

    kind: str
    name: str = ""
    value: Any = None


@dataclass
class Passes:
    """How often a handler has begun since it was last reset: what a seeded fault depends on."""

    count: int = 0

    def reset(self) -> None:
        self.count = 0


@dataclass(frozen=True)
class Program:
    """What a handler does, in order; `spoiled` programs hold one Op("spoiled")."""

    ops: tuple[Op, ...]
    is_plain: bool = False
    passes: Passes = field(default_factory=Passes)

    def workflow(self) -> Any:
        if self.is_plain:

            def generated(ctx: Any) -> list[Any]:
                self.passes.count += 1
                return _driven_plainly(ctx, _walk(ctx, self.ops, self.passes.count))

            return generated

        async def generated(ctx: Any) -> list[Any]:
            self.passes.count += 1
            return await _driven(_walk(ctx, self.ops, self.passes.count))

        return generated

    def with_ops(self, ops: list[Op]) -> "Program":
        return Program(tuple(ops), self.is_plain)


def program(seed: str) -> Program:
    dice = random.Random(seed)
    return Program(tuple(_ops(dice, depth=0)), is_plain=dice.random() < 0.3)


def spoiled(sound: Program, seed: str) -> Program:
    """Return the program with one fault somewhere in it, in a branch if there is one."""
    dice = random.Random(seed)
    return sound.with_ops(_inserted(dice, list(sound.ops), Op("spoiled", value=dice.choice(FAULTS))))


def changed(sound: Program, seed: str) -> Program:
    """Return other code: a recorded operation was renamed, left out, put in or moved."""
    dice = random.Random(seed)
    ops = list(sound.ops)
    new = Op("step", "new", 1)
    # Nothing records progress, so nothing shows that it is gone.
    places = [n for n, op in enumerate(ops) if op.kind != "progress"]
    at = dice.choice(places)
    match dice.choice(["rename", "leave out", "put in", "branch"]):
        case "rename":
            ops[at] = new
        case "leave out":
            del ops[at]
        case "put in":
            return sound.with_ops(_inserted(dice, ops, new))
        case "branch":
            ops[at] = Op("gather", value=((ops[at],), ()))
    return sound.with_ops(ops)


def _inserted(dice: random.Random, ops: list[Op], new: Op) -> list[Op]:
    branching = [n for n, op in enumerate(ops) if op.kind == "gather"]
    if branching and dice.random() < 0.5:
        at = dice.choice(branching)
        branches = list(ops[at].value)
        number = dice.randrange(len(branches))
        branches[number] = tuple(_inserted(dice, list(branches[number]), new))
        ops[at] = Op("gather", value=tuple(branches))
    else:
        ops.insert(dice.randint(0, len(ops)), new)
    return ops


def _ops(dice: random.Random, *, depth: int) -> list[Op]:
    kinds = ["step", "step", "transaction", "emit", "progress", "sleep", "caught", "drawn", "repeated"]
    kinds += ["spawn", "failing", "map", "gather", "gather"] if depth == 0 else ["gather"] * (depth < 2)
    # One operation that is recorded, at least.
    made = [_op(dice, dice.choice(kinds), depth) for _ in range(dice.randint(0, 3))]
    made.insert(dice.randint(0, len(made)), Op("step", dice.choice(NAMES), dice.randint(0, 9)))
    return made


def _op(dice: random.Random, kind: str, depth: int) -> Op:
    match kind:
        case "gather":
            return Op(kind, value=tuple(tuple(_ops(dice, depth=depth + 1)) for _ in range(dice.randint(1, 2))))
        case "sleep":
            return Op(kind, value=dice.choice([0, 5, 60, 7200]))
        case "map":
            return Op(kind, value=[dice.randint(0, 3) for _ in range(dice.randint(1, 3))])
    return Op(kind, dice.choice(NAMES), dice.randint(0, 9))


def echo(value: Any) -> Any:
    return value


async def echo_slowly(value: Any) -> Any:
    return value


def fails(value: Any) -> None:
    raise ValueError(f"not {value}")


def _written(value: Any) -> Any:
    async def work(_tx: Any) -> int:
        return value

    return work


# A handler's code as a generator: it yields what is to be called, and is sent what that returned. So async and plain
# handlers are the same code, driven differently.
Walk = Generator[Any, Any, list[Any]]


class Branches(NamedTuple):
    """What a handler does side by side."""

    walks: list[Walk]


def _walk(ctx: Any, ops: tuple[Op, ...], passes: int) -> Walk:
    done: list[Any] = []
    for op in ops:
        done += yield from _KINDS[op.kind](ctx, op, passes)
    return done


async def _driven(walk: Walk) -> list[Any]:
    try:
        call = next(walk)
        while True:
            try:
                if isinstance(call, Branches):
                    value = await asyncio.gather(*map(_driven, call.walks))
                else:
                    value = await call()
            except (ValueError, pgqrs.PgqrsError) as error:
                call = walk.throw(error)
            else:
                call = walk.send(value)
    except StopIteration as stop:
        return stop.value


def _driven_plainly(ctx: Any, walk: Walk) -> list[Any]:
    try:
        call = next(walk)
        while True:
            try:
                if isinstance(call, Branches):
                    value = ctx.gather(*(functools.partial(_driven_plainly, ctx, each) for each in call.walks))
                else:
                    value = call()
            except (ValueError, pgqrs.PgqrsError) as error:
                call = walk.throw(error)
            else:
                call = walk.send(value)
    except StopIteration as stop:
        return stop.value


def _step(ctx: Any, op: Op, _: int) -> Walk:
    return [(yield lambda: ctx.step(op.name, echo_slowly if op.value % 2 else echo, op.value))]


def _repeated(ctx: Any, op: Op, _: int) -> Walk:
    first = yield lambda: ctx.step(op.name, echo, op.value)
    return [first, (yield lambda: ctx.step(op.name, echo, op.value + 1))]


def _transaction(ctx: Any, op: Op, _: int) -> Walk:
    return [(yield lambda: ctx.transaction(op.name, _written(op.value)))]


def _emit(ctx: Any, op: Op, _: int) -> Walk:
    yield lambda: ctx.emit(f"test.{op.name}", op.value)
    return []


def _progress(ctx: Any, op: Op, _: int) -> Walk:
    yield lambda: ctx.progress(op.value, 10)
    return []


def _sleep(ctx: Any, op: Op, _: int) -> Walk:
    yield lambda: ctx.sleep(op.value)
    return []


def _caught(ctx: Any, op: Op, _: int) -> Walk:
    try:
        yield lambda: ctx.step(op.name, fails, op.value)
    except ValueError as error:
        return [str(error)]
    return []


def _drawn(ctx: Any, _op: Op, _: int) -> Walk:
    return [0 <= (yield ctx.random) < 1]


def _spawn(ctx: Any, op: Op, _: int) -> Walk:
    child = yield lambda: ctx.spawn(generated_child, op.value)
    return [(yield child.result)]


def _failing(ctx: Any, op: Op, _: int) -> Walk:
    child = yield lambda: ctx.spawn(generated_child, -1 - op.value)
    try:
        yield child.result
    except pgqrs.ExecutionFailed:
        return ["failed"]
    return []


def _map(ctx: Any, op: Op, _: int) -> Walk:
    return [(yield lambda: ctx.map(generated_child, op.value))]


def _gather(ctx: Any, op: Op, passes: int) -> Walk:
    return list((yield Branches([_walk(ctx, branch, passes) for branch in op.value])))


def _spoiled(ctx: Any, op: Op, passes: int) -> Walk:
    done = [passes] if op.value == "result" else []
    for name, value in _steps(op.value, passes):
        done.append((yield functools.partial(ctx.step, name, echo, value)))
    return done


def _steps(fault: str, passes: int) -> list[tuple[str, Any]]:
    """Return the steps that a seeded fault asks for in this pass, with their arguments."""
    match fault:
        case "name":
            return [(f"spoiled-{passes}", 0)]
        case "argument":
            return [("spoiled", passes)]
        case "order":
            return [("left", 0), ("right", 0)][:: 1 if passes % 2 else -1]
        case "extra":
            return [("extra", 0)] if passes % 2 else []
    return []


_KINDS: dict[str, Callable[[Any, Op, int], Walk]] = {
    "step": _step,
    "repeated": _repeated,
    "transaction": _transaction,
    "emit": _emit,
    "progress": _progress,
    "sleep": _sleep,
    "caught": _caught,
    "drawn": _drawn,
    "spawn": _spawn,
    "failing": _failing,
    "map": _map,
    "gather": _gather,
    "spoiled": _spoiled,
}
