"""One error for several callers: each gets a copy of its own."""

from __future__ import annotations

import copy
from typing import TypeVar

_E = TypeVar("_E", bound=BaseException)


def copy_of(error: _E) -> _E:
    """The same error once more, for another caller: raised in several tasks, one object would collect all traces.

    An error that cannot be copied is shared.
    """
    for make in (_without_init, copy.copy):
        try:
            mine = make(error)
            is_same = type(mine) is type(error) and mine is not error and str(mine) == str(error)
        except Exception:  # noqa: BLE001, S112 - its class may do anything when it is made
            continue
        if is_same:
            mine.__traceback__ = error.__traceback__
            mine.__cause__, mine.__context__ = error.__cause__, error.__context__
            mine.__suppress_context__ = error.__suppress_context__
            if hasattr(mine, "__notes__"):
                mine.__notes__ = list(mine.__notes__)
            return mine
    return error


def _without_init(error: _E) -> _E:
    """What `__init__` was given is not known any more, what it made is."""
    mine: _E = type(error).__new__(type(error), *error.args)
    mine.args = error.args
    mine.__dict__.update(error.__dict__)
    return mine
