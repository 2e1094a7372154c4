"""Classes that stand in for others: for one that cannot be found, and for one whose text cannot be made again.

A stand-in is a StepFailed. If the original class derives from classes that can be found (ValueError, PermanentError,
a library's base class), the stand-in derives from them, too, so that an `except` clause for them catches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgqrs.engine.recorded_errors.builtin import args_of
from pgqrs.engine.recorded_errors.classes import is_below, members_of, mro_of
from pgqrs.errors import StepFailed

# In the body of a class that is made here: the class that it stands for.
_ORIGINAL = "__pgqrs_original__"
_TEXT = "_pgqrs_text"

_made: dict[tuple[int, ...], tuple[type, ...]] = {}


def stand_in_class(bases: Sequence[type[Exception]]) -> type[Exception]:
    """Return StepFailed, or a class below it and `bases`, the same one each time.

    The bases must be classes that can be extended without running their code.
    """
    bases = [each for each in bases if not is_below(StepFailed, each)]
    if not bases:
        return StepFailed
    try:
        return _made_once((StepFailed, *bases), {"__str__": _first_argument, "__slots__": (), _ORIGINAL: StepFailed})
    except TypeError:  # they cannot be combined
        return StepFailed


def saying(kind: type[Exception]) -> type[Exception]:
    """Return a subclass whose instances say a text that they are given, instead of making one."""
    body = {"__str__": _given_text, "__slots__": (_TEXT,), _ORIGINAL: kind}
    return _made_once((kind,), body)


def say(error: BaseException, text: str) -> None:
    """Give an instance of a class made by `saying` its text."""
    members_of(type(error))[_TEXT].__set__(error, text)


def original_class(kind: type) -> type:
    """Return the class that a class made here stands for; any other class is its own."""
    original: type = members_of(kind).get(_ORIGINAL, kind)
    return original


def bases_of_stand_in(kind: type) -> tuple[type, ...]:
    """Return the classes, besides StepFailed, that a class made by `stand_in_class` is below."""
    return kind.__bases__[1:] if original_class(kind) is StepFailed and kind is not StepFailed else ()


def _made_once(bases: tuple[type, ...], body: dict[str, Any]) -> type[Exception]:
    # By identity: the hash of a class may be a metaclass's. The value keeps the bases alive, and so their ids.
    key = tuple(map(id, bases))
    if key not in _made:
        first = bases[0]
        names = {"__module__": first.__module__, "__qualname__": first.__qualname__}
        _made[key] = (type(first.__name__, bases, {**body, **names}), *bases)
    made: type[Exception] = _made[key][0]
    return made


def _first_argument(self: BaseException) -> str:
    args = args_of(self)
    return str(args[0]) if args else ""


def _given_text(self: BaseException) -> str:
    for each in mro_of(type(self)):
        if _ORIGINAL in members_of(each):
            text: str = members_of(each)[_TEXT].__get__(self)
            return text
    return ""
