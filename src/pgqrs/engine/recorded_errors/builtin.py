"""The exceptions of Python itself: how one is made, and the fields that its C code keeps outside of `__dict__`."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Sequence
from types import MemberDescriptorType
from typing import Any

from pgqrs.engine.recorded_errors.classes import is_below, members_of, mro_of

_BUILTINS = frozenset(
    each
    for each in vars(builtins).values()
    if isinstance(each, type) and issubclass(each, BaseException) and each.__module__ == "builtins"
)

# The type that Python's own code, in C or in `traceback`, takes for granted; `object`: any.
_FIELDS: dict[type[BaseException], dict[str, type]] = {
    OSError: {
        "errno": object,
        "strerror": object,
        "filename": object,
        "filename2": object,
        "characters_written": int,
    },
    ImportError: {"msg": object, "name": object, "path": object, "name_from": object},
    AttributeError: {"name": object, "obj": object},
    NameError: {"name": object},
    StopIteration: {"value": object},
    SyntaxError: {
        "msg": str,
        "filename": str,
        "lineno": int,
        "offset": int,
        "text": str,
        "end_lineno": int,
        "end_offset": int,
        "print_file_and_line": object,
    },
    UnicodeDecodeError: {"encoding": str, "object": bytes, "start": int, "end": int, "reason": str},
    UnicodeEncodeError: {"encoding": str, "object": str, "start": int, "end": int, "reason": str},
    UnicodeTranslateError: {"encoding": str, "object": str, "start": int, "end": int, "reason": str},
}

# OSError(None, "x") has these, and OSError() has not; both are None to read, but its text differs.
_BY_PAIR = ("errno", "strerror")

_base = vars(type)["__base__"]
_args = BaseException.__dict__["args"]
_cause = BaseException.__dict__["__cause__"]
_context = BaseException.__dict__["__context__"]
_suppressed = BaseException.__dict__["__suppress_context__"]
_attributes = BaseException.__dict__["__dict__"]


def _is_builtin(kind: type) -> bool:
    # Looked up only if its metaclass is `type`: the hash of a class may be a metaclass's.
    return type(kind) is type and kind in _BUILTINS


def builtin_base(kind: type) -> type[BaseException]:
    """Return the class of Python itself that gives a class its form in memory, and so has to make its instances.

    It is not always the first of the MRO: MemoryError would refuse to make a `class E(Mine, MemoryError)`.
    """
    while not _is_builtin(kind):
        kind = _base.__get__(kind)
    return kind


def make(kind: type[BaseException], *, message: str, exceptions: Sequence[BaseException]) -> BaseException:
    """Make an instance without calling `__new__` or `__init__` of its class.

    Raises TypeError if the class keeps data of its own in C, so that only its own `__new__` can make one, and if it
    has a `__del__`, which would run.
    """
    if any("__del__" in members_of(each) for each in mro_of(kind)):
        raise TypeError("a class with __del__ runs code when its instances go")
    base: Any = builtin_base(kind)
    if is_below(base, BaseExceptionGroup):
        made = BaseExceptionGroup.__new__(kind, message, list(exceptions))  # type: ignore[type-var]
    else:
        made = base.__new__(kind)
    if type(made) is not kind:
        raise TypeError(f"{base.__name__} made a {type(made).__name__}")
    error: BaseException = made
    return error


def attributes_of(error: BaseException) -> dict[str, Any]:
    """Return the instance's `__dict__`, whatever its class does with attributes."""
    attributes: dict[str, Any] = _attributes.__get__(error)
    return attributes


def args_of(error: BaseException) -> tuple[Any, ...]:
    args: tuple[Any, ...] = _args.__get__(error)
    return args


def set_args(error: BaseException, args: Sequence[Any]) -> None:
    _args.__set__(error, tuple(args))


def chain_of(error: BaseException) -> tuple[BaseException | None, BaseException | None, bool]:
    """Return the cause, the context, and whether the context is not to be shown."""
    return _cause.__get__(error), _context.__get__(error), _suppressed.__get__(error)


def set_chain(
    error: BaseException, *, cause: BaseException | None, context: BaseException | None, suppressed: bool
) -> None:
    _cause.__set__(error, cause)
    _context.__set__(error, context)
    _suppressed.__set__(error, suppressed)


def group_of(error: BaseException) -> tuple[str | None, tuple[BaseException, ...]]:
    """Return the message and the members of a group; None and none for any other error."""
    if not is_below(type(error), BaseExceptionGroup):
        return None, ()
    members = vars(BaseExceptionGroup)
    return members["message"].__get__(error), members["exceptions"].__get__(error)


def slots_of(kind: type) -> dict[str, Any]:
    """Return the descriptors of the slots that classes written in Python declare; the nearest class wins.

    Members that a class keeps in C look alike, but may rely on their values; those classes have no `__slots__`.
    """
    found: dict[str, Any] = {}
    for each in mro_of(kind):
        members = members_of(each)
        if "__slots__" not in members or "__pgqrs_original__" in members:
            continue
        for name, member in members.items():
            if type(member) is MemberDescriptorType and name not in found:
                found[name] = member
    return found


def writes_its_text(kind: type) -> bool:
    """Tell whether a class has a `__str__` that is not Python's own."""
    owner = next(each for each in mro_of(kind) if "__str__" in members_of(each))
    return not _is_builtin(owner)


def fields_of(error: BaseException) -> dict[str, Any]:
    """Return the fields that have a value, by name."""
    found: dict[str, Any] = {}
    for name, (descriptor, kind) in _descriptors(type(error)).items():
        try:
            value = descriptor.__get__(error)
        except (AttributeError, TypeError):  # not set
            continue
        if (value is not None and kind in (object, type(value))) or (name in _BY_PAIR and len(args_of(error)) == 2):
            found[name] = value
    return found


def set_fields(error: BaseException, fields: dict[str, Any]) -> None:
    """Set the fields that are of the type that Python's code relies on; the others stay unset."""
    if is_below(type(error), UnicodeError) and not _in_range(fields):
        return
    for name, (descriptor, kind) in _descriptors(type(error)).items():
        value = fields.get(name)
        if (value is not None and kind in (object, type(value))) or (name in _BY_PAIR and name in fields):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                descriptor.__set__(error, value)


def _in_range(fields: dict[str, Any]) -> bool:
    """Tell whether `str` of a Unicode error can be asked for: it reads its object at `start`, and checks nothing."""
    start, end = fields.get("start"), fields.get("end")
    return type(start) is int and type(end) is int and 0 <= start < 2**62 and 0 <= end < 2**62


def _descriptors(kind: type) -> dict[str, tuple[Any, type]]:
    for each in mro_of(kind):
        if _is_builtin(each) and each in _FIELDS:
            present = vars(each)
            return {name: (present[name], type_) for name, type_ in _FIELDS[each].items() if name in present}
    return {}
