"""Step ids: the one place that writes and reads their grammar.

    fetch            the first step of that name in the handler itself
    fetch#2          the second one
    fetch@1          the first one in branch 1 of the handler
    fetch@2.1#3      the third one in the first branch of its second branch

A name is what the code calls the step, or one of these, which the engine records by itself:

    sleep  pause  first  spawn  now  uuid  random
    wait_for:approve    a wait for the signal `approve`
    result:7            a wait for the end of the child run 7
    emit:order.shipped  an event

Names hold neither `@` nor `#` (`names.checked_step_name`), so every id that is written is read back as it was. A
user's own step may have one of the engine's names; its id does not tell them apart. A name that only begins like one,
such as `pause_campaign`, is the user's.

SQL reads ids too, in `db/upkeep/invariants.sql` and `db/runs/restarts.sql`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SLEEP = "sleep"
PAUSE = "pause"
FIRST = "first"
SPAWN = "spawn"
NOW = "now"
UUID = "uuid"
RANDOM = "random"

_WAIT_FOR = "wait_for:"
_RESULT = "result:"
_EMIT = "emit:"
# What stands between a name and its place, whichever comes first.
_PLACE = re.compile("[@#]")
# 18 digits: a run id is a 64-bit number.
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class StepId(NamedTuple):
    """An id in its parts."""

    name: str
    # Of the branch that asked for it; empty for the handler itself.
    path: str
    # 1 for the first step of that name in its branch.
    number: int


# -- write ---------------------------------------------------------------------------------------------------


def write(name: str, path: str, number: int) -> str:
    """Return the id of the `number`th step of that name in the branch with that path."""
    if not path:
        return name if number == 1 else f"{name}#{number}"
    return f"{name}@{path}" if number == 1 else f"{name}@{path}#{number}"


def wait_for(signal: str) -> str:
    """Return the name of a step that waits for the signal."""
    return _WAIT_FOR + signal


def result(run_id: int) -> str:
    """Return the name of a step that waits for the end of a child."""
    return f"{_RESULT}{run_id}"


def emit(event_type: str) -> str:
    """Return the name of a step that emits an event."""
    return _EMIT + event_type


# -- read ----------------------------------------------------------------------------------------------------


def read(given: str) -> StepId:
    """Return the parts of an id. An id that `write` did not make gives parts, too: a database may hold any text."""
    number = given.rpartition("#")[2] if "#" in given else "1"
    return StepId(name_of(given), branch_of(given), int(number) if _NUMBER.fullmatch(number) else 1)


def name_of(given: str) -> str:
    """Return the name as the code has it: `fetch@1#2` is a `fetch`."""
    return _PLACE.split(given, maxsplit=1)[0]


def branch_of(given: str) -> str:
    """Return the path of the branch that asked for it: `2.1` for `fetch@2.1#3`, empty for the handler itself."""
    return given.partition("@")[2].partition("#")[0]


def work_of(given: str) -> str:
    """Return what is the same for the same work: the name, and `result:` for the results of all children."""
    return name_of(given) if child_of(given) is None else _RESULT


def anywhere(given: str) -> str:
    """Return the id without its place among branches: `use@1#2` and `use@2#3` are `use@*`, `use#2` stays as it is.

    The number of a child is left out as well.
    """
    _, path, number = read(given)
    return write(work_of(given), "*" if path else "", 1 if path else number)


def signal_of(given: str) -> str | None:
    """Return the signal that a step waits for: `approve` for `wait_for:approve@1#2`; None for other steps."""
    name = name_of(given)
    return name.removeprefix(_WAIT_FOR) or None if name.startswith(_WAIT_FOR) else None


def child_of(given: str) -> int | None:
    """Return the child whose end a step waits for: 7 for `result:7@1`; None for other steps."""
    name = name_of(given)
    found = _NUMBER.fullmatch(name, len(_RESULT)) if name.startswith(_RESULT) else None
    return None if found is None else int(found[0])


def event_of(given: str) -> str | None:
    """Return the type of the event that a step emits: `shipped` for `emit:shipped#2`; None for other steps."""
    name = name_of(given)
    return name.removeprefix(_EMIT) or None if name.startswith(_EMIT) else None


def is_sleep(given: str) -> bool:
    return name_of(given) == SLEEP


def is_pause(given: str) -> bool:
    return name_of(given) == PAUSE


def is_spawn(given: str) -> bool:
    return name_of(given) == SPAWN


def is_answered_by_people(given: str) -> bool:
    """Is it a wait for a signal, or for a person: `wait_for:approve`, `pause#2`?"""
    return is_pause(given) or signal_of(given) is not None


def is_wait(given: str) -> bool:
    """Is it a wait and no work: for a time, a person, a signal or a child?"""
    return is_sleep(given) or is_answered_by_people(given) or child_of(given) is not None
