"""Random programs: the `number`th of a seed is always the same one."""

from __future__ import annotations

import random
from collections.abc import Callable

from proof.programs import oracle
from proof.programs.answers import Answer, Racy
from proof.programs.errors import KINDS, PERMANENT
from proof.programs.grammar import (
    Ask,
    Block,
    Body,
    Catch,
    Child,
    Emit,
    ErrorHas,
    ErrorIs,
    Fails,
    First,
    Gather,
    Gives,
    Group,
    Hangs,
    If,
    Join,
    LastIs,
    Loop,
    Map,
    Pause,
    Program,
    Progress,
    Raise,
    Reraise,
    Return,
    Sleep,
    Start,
    Statement,
    Step,
    Test,
    Transact,
    Try,
    TryGroup,
    Wait,
    size,
)
from proof.programs.virtual import Stuck

_VALUES = (0, 1, 2, "a", None, [1, {"k": 2.5}], True)
_CALLED = ("step", "charge", "fetch", "step")
MOST_DEPTH = 3
# Beyond these a program takes long, and shows nothing that a smaller one would not.
MOST_STATEMENTS = 22
TRIES = 200


def generate(seed: int, number: int) -> tuple[Program, Answer]:
    """A program that is no race, and what must come of it."""
    for attempt in range(TRIES):
        program = Generator(random.Random(f"{seed} {number} {attempt}")).program()
        if not 1 <= size(program) <= MOST_STATEMENTS:
            continue
        try:
            answer = oracle.ask(program)
            oracle.ask_under_faults(program)
        except (Racy, Stuck):
            continue
        return program, answer
    raise AssertionError(f"no program {number} of seed {seed} in {TRIES} tries")


class Generator:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0
        self._plain = False
        self._in_child = False
        # How many `try` are around what is being made.
        self._guarded = 0

    def program(self) -> Program:
        self._plain = self._rng.random() < 0.15
        attempts = self._rng.choice([1, 2, 3])
        return Program(self._block(0, most=6), plain=self._plain, attempts=attempts)

    # -- blocks ------------------------------------------------------------------------------------------

    def _block(self, depth: int, *, most: int = 3, least: int = 1, handling: bool = False) -> Block:
        statements: list[Statement] = []
        started: list[str] = []
        for _ in range(self._rng.randint(least, most)):
            if started and self._rng.random() < 0.3:
                statements.append(Join(started.pop()))
            statement = self._statement(depth, handling=handling)
            if isinstance(statement, Start):
                started.append(statement.name)
            statements.append(statement)
        # Some are never awaited.
        statements += [Join(name) for name in started if self._rng.random() < 0.6]
        if depth and self._rng.random() < 0.07:
            statements.append(Return())
        return tuple(statements)

    def _statement(self, depth: int, *, handling: bool) -> Statement:
        rng = self._rng
        if handling and rng.random() < 0.25:
            return rng.choice([Reraise(), self._raise(handling=True)])
        if depth >= MOST_DEPTH or rng.random() < 0.55:
            return self._doing()
        makers: list[tuple[float, Callable[[int], Statement]]] = [
            (3, self._try),
            (1.5, lambda depth: self._if(depth, handling=handling)),
            (1, self._loop),
            (1.3, self._gather),
            (0.6 if self._guarded else 0.15, lambda _: self._raise(handling=handling)),
        ]
        if not self._plain:
            makers += [(1, self._group), (1, self._try_group), (1.5, self._start)]
        [make] = rng.choices([make for _, make in makers], [weight for weight, _ in makers])
        return make(depth + 1)

    def _try(self, depth: int) -> Statement:
        rng = self._rng
        self._guarded += 1
        body = self._block(depth)
        self._guarded -= 1
        catches = tuple(self._catch(depth, body) for _ in range(rng.choice([0, 1, 1, 1, 2])))
        final = self._block(depth + 1, most=2) if not catches or rng.random() < 0.3 else ()
        final = tuple(each for each in final if not isinstance(each, Return))
        otherwise = self._block(depth + 1, most=2) if catches and rng.random() < 0.2 else ()
        return Try(body, catches, otherwise, final)

    def _catch(self, depth: int, body: Block) -> Catch:
        kinds = sorted(
            {each.body.kind for each in body if isinstance(each, Step | Transact) and isinstance(each.body, Fails)}
        )
        if kinds and self._rng.random() < 0.5:
            chosen: tuple[str, ...] = (self._rng.choice(kinds),)
        else:
            chosen = self._rng.choice(
                [
                    (),
                    (),
                    ("OSError",),
                    ("ValueError",),
                    ("PgqrsError",),
                    ("ExecutionFailed", "RunCancelled"),
                    ("WaitTimeout",),
                ]
            )
        block = self._block(depth + 1, least=0, most=2, handling=True)
        if self._rng.random() < 0.4:
            # Most handlers that look at an error decide something by it.
            block = (*block, self._if(depth + 1, handling=True))
        return Catch(chosen, block)

    def _try_group(self, depth: int) -> Statement:
        body: Block = (self._group(depth),) if self._rng.random() < 0.6 else self._block(depth)
        kinds = self._rng.choice([(), ("OSError",), ("ValueError", "declined")])
        caught = tuple(
            each for each in self._block(depth + 1, least=0, most=2, handling=True) if not isinstance(each, Return)
        )
        return TryGroup(body, Catch(kinds, caught), ())

    def _if(self, depth: int, *, handling: bool) -> Statement:
        return If(
            self._test(handling=handling),
            self._block(depth, most=2, handling=handling),
            self._block(depth, least=0, most=2, handling=handling),
        )

    def _test(self, *, handling: bool) -> Test:
        rng = self._rng
        if handling and rng.random() < 0.8:
            return rng.choice(
                [
                    *[ErrorHas("code", rng.randint(1, 3))] * 3,
                    ErrorHas("errno", 2),
                    ErrorHas("pos", rng.randint(1, 3)),
                    ErrorHas("ambiguous", value=True),
                    ErrorHas("response", {"status": 1, "body": ["a", None]}),
                    *[ErrorIs(rng.choice(["os", "declined", "ExecutionFailed", "TimeoutError", "WaitTimeout"]))] * 2,
                ]
            )
        return LastIs(rng.choice(_VALUES))

    def _loop(self, depth: int) -> Statement:
        until = LastIs(self._rng.choice(_VALUES)) if self._rng.random() < 0.4 else None
        return Loop(self._rng.randint(1, 3), self._block(depth, most=2), until)

    def _raise(self, *, handling: bool) -> Statement:
        chained = self._rng.choice(["", "from", "cause", "other"]) if handling else ""
        return Raise(self._rng.choice([*KINDS]), self._rng.randint(1, 3), chained)

    # -- side by side ------------------------------------------------------------------------------------

    def _branches(self, depth: int) -> tuple[Block, ...]:
        return tuple(self._block(depth, most=3) for _ in range(self._rng.randint(2, 3)))

    def _gather(self, depth: int) -> Statement:
        how = "ctx" if self._plain else self._rng.choice(["asyncio", "ctx"])
        lenient = self._rng.random() < 0.5
        return Gather(self._name("g"), self._branches(depth), how, return_exceptions=lenient)

    def _group(self, depth: int) -> Statement:
        return Group(self._name("t"), self._branches(depth))

    def _start(self, depth: int) -> Statement:
        if self._rng.random() < 0.4:
            return Start(self._name("b"), (self._sleep(),))
        return Start(self._name("b"), self._block(depth, most=2))

    # -- statements that do something --------------------------------------------------------------------

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _doing(self) -> Statement:
        rng = self._rng
        makers: list[tuple[float, Callable[[], Statement]]] = [
            (10, self._step),
            (1.5, self._transact),
            (1, lambda: Emit(self._name("e"))),
            (0.7, lambda: Progress(self._name("p"))),
            (0.7, lambda: Ask(self._name("q"), rng.choice(["now", "uuid", "random"]))),
            (1.6, self._sleep),
            (1.3, self._wait),
            (0.6, self._first),
            (1, self._pause),
        ]
        if not self._in_child:
            makers += [(1.6, self._child), (0.6, self._map)]
        [make] = rng.choices([make for _, make in makers], [weight for weight, _ in makers])
        return make()

    def _step(self) -> Statement:
        rng = self._rng
        plain = self._plain or rng.random() < 0.12
        retry = rng.choice([0, 0, 0, 1, 2, 3])
        emits = plain == self._plain and rng.random() < 0.06
        return Step(self._name("s"), self._body(retry), rng.choice(_CALLED), retry, plain, emits)

    def _transact(self) -> Statement:
        return Transact(self._name("x"), self._body(0, hangs=False))

    def _body(self, retry: int, *, hangs: bool = True) -> Body:
        rng = self._rng
        value = rng.choice(_VALUES)
        # Most errors happen where something catches them.
        if rng.random() < (0.5 if self._guarded else 0.82):
            return Gives(value)
        if rng.random() < 0.05 and hangs:
            return Hangs(value)
        kind = rng.choice([*KINDS])
        # As often as its policy makes good, or the run's second attempt: then what comes of it does not depend on
        # attempts that a fault has cost.
        few = [None, None, 1] if retry <= 1 else [None, *range(1, retry)]
        times = None if kind in PERMANENT else rng.choice(few)
        return Fails(kind, rng.randint(1, 3), times, value, caused=rng.random() < 0.1)

    def _sleep(self) -> Statement:
        return Sleep(self._name("z"), self._rng.choice([1, 60, 5000]))

    def _wait(self) -> Statement:
        sent = self._rng.choice(["before", "late", "late", "never"])
        timeout = self._rng.choice([None, 100_000.0]) if sent != "never" else self._rng.choice([10.0, 4000.0])
        return Wait(self._name("w"), sent, timeout, self._rng.choice(_VALUES))

    def _pause(self) -> Statement:
        return Pause(self._name("a"), self._rng.choice(["pause", "data", "again"]), self._rng.choice(_VALUES))

    def _child(self) -> Statement:
        if self._rng.random() < 0.15:
            waiting = Program((self._step(), Wait(self._name("w"), "never")))
            return Child(self._name("c"), waiting, cancelled=True)
        if not self._plain and self._rng.random() < 0.3:
            return Child(self._name("c"), self._small(plain=False), "call")
        return Child(self._name("c"), self._small())

    def _first(self) -> Statement:
        contenders = self._rng.randint(1, 3)
        how = self._rng.choice(["sleep", "signal", "pause"])
        return First(self._name("r"), self._rng.randrange(contenders), how, contenders)

    def _map(self) -> Statement:
        programs = tuple(self._small(plain=False) for _ in range(self._rng.randint(1, 3)))
        lenient = self._rng.random() < 0.4
        return Map(self._name("m"), programs, self._rng.choice([None, 1, 2]), return_exceptions=lenient)

    def _small(self, *, plain: bool | None = None) -> Program:
        """A child: one or two statements, and no children of its own."""
        before = self._plain, self._guarded
        self._plain = self._rng.random() < 0.15 if plain is None else plain
        self._in_child, self._guarded = True, 0
        try:
            return Program(self._block(MOST_DEPTH - 1, most=2), plain=self._plain)
        finally:
            self._in_child = False
            self._plain, self._guarded = before
