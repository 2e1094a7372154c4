"""Programs as data: a handler is a tree of these statements, which `walker.py` executes.

Every statement that does something has a name of its own; in a loop its key is the name with the iteration (`s3[1]`).
`repr` of a program is Python: `eval` with the names of this module gives the program back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# -- what a branch asks ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LastIs:
    """The last value that this branch was given is this one."""

    value: Any


@dataclass(frozen=True, slots=True)
class ErrorHas:
    """The error that is being handled has this attribute, with this value."""

    attribute: str
    value: Any


@dataclass(frozen=True, slots=True)
class ErrorIs:
    """The error that is being handled is of the class of this kind (`errors.KINDS`)."""

    kind: str


Test = LastIs | ErrorHas | ErrorIs


# -- what a body does --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gives:
    """Returns the value."""

    value: Any = 1


@dataclass(frozen=True, slots=True)
class Fails:
    """Raises the error: the first `times` times, or always until the world is healed (None)."""

    kind: str = "value"
    number: int = 1
    times: int | None = None
    # What it returns when it does not fail any more.
    value: Any = 1
    # Raised `from` another error.
    caused: bool = False


@dataclass(frozen=True, slots=True)
class Hangs:
    """Does not end in time, until the world is healed."""

    value: Any = 1


Body = Gives | Fails | Hangs


# -- statements that do something --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    body: Body = Gives()
    # What the engine calls it; statements may share it. Empty: by its key, which no other has.
    called: str = "step"
    # The attempts that its policy allows; 0: it has no policy.
    retry: int = 0
    # A plain function, in a thread.
    plain: bool = False
    # Its body emits an event.
    emits: bool = False


@dataclass(frozen=True, slots=True)
class Transact:
    """`ctx.transaction`: one row, and then perhaps an error."""

    name: str
    body: Body = Gives()
    called: str = "tx"


@dataclass(frozen=True, slots=True)
class Emit:
    name: str


@dataclass(frozen=True, slots=True)
class Progress:
    name: str


@dataclass(frozen=True, slots=True)
class Ask:
    """`ctx.now()`, `ctx.uuid()`, `ctx.random()`."""

    name: str
    what: str = "uuid"


@dataclass(frozen=True, slots=True)
class Sleep:
    name: str
    seconds: float = 60


@dataclass(frozen=True, slots=True)
class Wait:
    """`ctx.wait_for`. The signal is sent before the run begins, when the run waits for it, or never."""

    name: str
    sent: str = "late"
    timeout: float | None = None
    value: Any = "yes"


# What every `ctx.pause` is answered with: its id does not say which one it is.
ANSWER = "ok"


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits for a person. `how`: "pause" is `ctx.pause`; the others are a step that raises PauseError.

    A "data" step is answered. An "again" step runs again when the run is resumed without data, and returns then.
    """

    name: str
    how: str = "pause"
    given: Any = 1

    @property
    def value(self) -> Any:
        return ANSWER if self.how == "pause" else self.given


@dataclass(frozen=True, slots=True)
class Child:
    """Another run: `spawn` and `result()`, or a nested call. It may be cancelled from outside when it waits."""

    name: str
    program: Program
    how: str = "spawn"
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    name: str
    programs: tuple[Program, ...]
    limit: int | None = None
    return_exceptions: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """`ctx.first`: a race whose winner is certain, because the others wait for signals that never come."""

    name: str
    # The place of the winner among the contenders, and what it is: a timer, a signal or a pause.
    winner: int = 0
    how: str = "sleep"
    contenders: int = 2

    @property
    def value(self) -> Any:
        return {"sleep": None, "pause": ANSWER}.get(self.how, "won")


Doing = Step | Transact | Emit | Progress | Ask | Sleep | Wait | Pause | Child | Map | First


# -- statements that decide what comes next ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class If:
    test: Test
    then: Block = ()
    otherwise: Block = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """So many times, or until the test holds after an iteration."""

    times: int
    body: Block = ()
    until: Test | None = None


@dataclass(frozen=True, slots=True)
class Catch:
    """`except` for these kinds of errors; without any, for `Exception`."""

    kinds: tuple[str, ...] = ()
    body: Block = ()


@dataclass(frozen=True, slots=True)
class Try:
    body: Block = ()
    catches: tuple[Catch, ...] = ()
    otherwise: Block = ()
    final: Block = ()


@dataclass(frozen=True, slots=True)
class TryGroup:
    """`except*`, one clause."""

    body: Block = ()
    catch: Catch = Catch()
    final: Block = ()


@dataclass(frozen=True, slots=True)
class Raise:
    """An error of the handler's own; `chained` in a handler says what it is raised `from`.

    The error handled ("from"), the cause of that ("cause"), one that has nothing to do with it ("other"), none ("").
    """

    kind: str = "value"
    number: int = 1
    chained: str = ""


@dataclass(frozen=True, slots=True)
class Reraise:
    """The error that is being handled, once more."""


@dataclass(frozen=True, slots=True)
class Return:
    """What this branch has seen so far."""


# -- statements that do several things side by side --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gather:
    """`how`: asyncio's gather, or the context's."""

    name: str
    branches: tuple[Block, ...]
    how: str = "asyncio"
    return_exceptions: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """`asyncio.TaskGroup`."""

    name: str
    branches: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """`asyncio.create_task`: goes on in the background."""

    name: str
    body: Block = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Awaits what was started under that name; nothing, when it was not."""

    name: str


@dataclass(frozen=True, slots=True)
class Pool:
    """So many workers in a TaskGroup take the branches from an `asyncio.Queue`, each the next one when it is free."""

    name: str
    branches: tuple[Block, ...]
    workers: int = 2


@dataclass(frozen=True, slots=True)
class Race:
    """`how`: "first" is `asyncio.wait` for the first branch to end, "each" is `asyncio.as_completed`.

    The branches that lose are cancelled and awaited (`ends`), or left alone.
    """

    name: str
    branches: tuple[Block, ...]
    how: str = "first"
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """Under an `asyncio.Lock` that all branches share. It gives the number of those that held the lock before."""

    name: str
    body: Block = ()


@dataclass(frozen=True, slots=True)
class Flip:
    """Chance that nobody records. Never generated: the instruments of `pgqrs.testing` must catch it (`kit.py`)."""

    name: str
    then: Block = ()
    otherwise: Block = ()


Statement = (
    Doing
    | If
    | Loop
    | Try
    | TryGroup
    | Raise
    | Reraise
    | Return
    | Gather
    | Group
    | Start
    | Join
    | Pool
    | Race
    | Hold
    | Flip
)
Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One handler, and how often its run may be attempted."""

    body: Block = ()
    plain: bool = False
    attempts: int = 3


def parts(node: Any) -> Iterator[Any]:
    """Every dataclass in the tree, from the top."""
    if dataclasses.is_dataclass(node):
        yield node
        for field in dataclasses.fields(node):
            yield from parts(getattr(node, field.name))
    elif isinstance(node, tuple):
        for each in node:
            yield from parts(each)


def size(program: Program) -> int:
    """How many statements do something."""
    return sum(isinstance(part, Doing) for part in parts(program))
