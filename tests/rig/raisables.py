"""Errors of every kind, random ones among them, and all that a program can observe of one."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import enum
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from pgqrs.engine.recorded_errors.builtin import fields_of, slots_of
from pgqrs.engine.recorded_errors.unrecorded import Unrecorded, details_of
from rig.values import Values

BUILTINS = sorted(
    {each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, Exception)},
    key=lambda each: each.__name__,
)


class Code(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Detail:
    code: Code
    parts: tuple[int, ...]


class Pair(NamedTuple):
    left: int
    right: Detail | None


class Outer:
    """A class with others in it, as people write them."""


def handler(ctx):
    """Stand for a handler of this module: its classes are at home."""


def _plain(name: str, base: type) -> type:
    return type(name, (base,), {})


def _with_attributes(name: str, base: type) -> type:
    def init(self, *args, code, detail, extra=None):
        base.__init__(self, *args)
        self.code, self.detail, self.extra = code, detail, extra

    annotations = {"code": Code, "detail": "Detail | Pair | None"}
    return type(name, (base,), {"__init__": init, "__annotations__": annotations})


def _with_slots(name: str, base: type) -> type:
    def init(self, *args, code=None, detail=None, extra=None):
        base.__init__(self, *args)
        self.code, self.extra = code, extra

    annotations = {"code": Code, "detail": "Detail | Pair | None"}
    slots = ("code", "extra", "unset")
    return type(name, (base,), {"__init__": init, "__slots__": slots, "__annotations__": annotations})


def _with_text(name: str, base: type) -> type:
    def text(self):
        return f"{type(self).__name__} says {getattr(self, 'extra', None)!s}"

    return type(name, (_with_attributes(name, base),), {"__str__": text})


_SHAPES = {"Plain": _plain, "Told": _with_attributes, "Slotted": _with_slots, "Saying": _with_text}
# By builtin class: classes that a record can name.
CLASSES: dict[type, list[type]] = {}
for _base in BUILTINS:
    CLASSES[_base] = [_base]
    for _shape, _make in _SHAPES.items():
        _name = f"{_shape}{_base.__name__}"
        _made = _make(_name, _base)
        _made.__module__ = __name__
        if _shape in ("Plain", "Slotted"):
            _made.__qualname__ = f"Outer.{_name}"
            setattr(Outer, _name, _made)
        else:
            globals()[_name] = _made
        CLASSES[_base].append(_made)


class Errors:
    """Random errors; the same seed gives the same ones. `odd`: also what no record can hold."""

    def __init__(self, seed: int, *, odd: bool) -> None:
        self.odd = odd
        self.random = random.Random(seed)
        self.values = Values(seed)

    def one(self, depth: int = 3) -> Exception:
        base = self.random.choice(BUILTINS)
        if depth == 0 and issubclass(base, BaseExceptionGroup):
            base = ValueError
        kind = self.random.choice(CLASSES[base])
        if self.odd and self.random.random() < 0.1:
            # Local: no record can name it.
            kind = type("Local", (kind,), {"__qualname__": "one.<locals>.Local", "__module__": __name__})
        error = self._made(kind, base, depth)
        for _ in range(self.random.choice((0, 0, 1, 3))):
            vars(error)[self.random.choice(("status", "response", "_private", "naïve", "__notes"))] = self._value(
                depth
            )
        for _ in range(self.random.choice((0, 0, 1, 2))):
            error.add_note(self._string())
        if depth:
            if self.random.random() < 0.3:
                error.__cause__ = self.one(depth - 1)
            if self.random.random() < 0.4:
                error.__context__ = error.__cause__ if self.random.random() < 0.7 else self.one(depth - 1)
            if self.random.random() < 0.2:
                error.__suppress_context__ = self.random.random() < 0.5
            if self.random.random() < 0.1 and error.__cause__ is not None:
                error.__cause__.__context__ = error
        return error

    def _made(self, kind: type, base: type, depth: int) -> Any:
        args = self._args(base, depth)
        named: dict[str, Any] = {}
        if any(shape in _names(kind) for shape in ("Told", "Saying", "Slotted")):
            code = self.random.choice(list(Code))
            named = {"code": code, "detail": self._detail(), "extra": self._value(depth)}
        if issubclass(base, BaseExceptionGroup):
            error = BaseExceptionGroup.__new__(kind, *args)
            for name, value in named.items():
                setattr(error, name, value)
            return error
        error = base.__new__(kind, *args)
        error.__init__(*args, **named)
        return error

    def _args(self, base: type, depth: int) -> tuple[Any, ...]:
        if issubclass(base, BaseExceptionGroup):
            return self._string(), [self.one(depth - 1) for _ in range(self.random.randint(1, 3))]
        if base is UnicodeDecodeError:
            return "utf-8", self.random.randbytes(3), self.random.randint(0, 3), self.random.randint(0, 4), "bad"
        if base is UnicodeEncodeError:
            return "ascii", "aé", self.random.randint(0, 1), self.random.randint(0, 4), "bad"
        if base is UnicodeTranslateError:
            return "aé", self.random.randint(0, 1), self.random.randint(0, 4), "bad"
        if issubclass(base, OSError) and self.random.random() < 0.6:
            return (
                self.random.choice((2, 13, 17, 104)),
                "why",
                *self.random.choice(((), ("a.txt",), (b"a", None, "b"))),
            )
        if issubclass(base, SyntaxError) and self.random.random() < 0.6:
            return "bad", self.random.choice((("f.py", 1, 2, "x y"), ("f.py", 1, 2, "x y", 1, 3)))
        if issubclass(base, SyntaxError | ImportError):
            return (self._string(),)
        return tuple(self._value(depth) for _ in range(self.random.choice((0, 1, 1, 2))))

    def _value(self, depth: int) -> Any:
        chance = self.random.random()
        if chance < 0.1 and depth:
            return self.one(depth - 1)
        if chance < 0.15 and depth:
            return {"errors": [self.one(depth - 1), 3], "why": ("x",)}
        if chance < 0.25 and self.odd:
            return self.random.choice((object(), self._detail(), Code.LOW, open, float("nan"), "a\0b"))
        # The text of a set depends on the order in which it was filled.
        while _has_set(value := self.values.good(2)):
            pass
        return value

    def _detail(self) -> Any:
        detail = Detail(self.random.choice(list(Code)), (1, 2))
        return self.random.choice((None, detail, Pair(1, detail), Pair(2, None)))

    def _string(self) -> str:
        return self.random.choice(("", "a", "naïve", "two\nlines", "x" * 300))


def _has_set(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_set, [*value, *value.values()]))
    return isinstance(value, set | frozenset) or (isinstance(value, list | tuple) and any(map(_has_set, value)))


def _names(kind: type) -> str:
    return " ".join(each.__name__ for each in kind.__mro__)


def observed(error: BaseException | None, _seen: dict[int, int] | None = None) -> Any:
    """Return all that a program can see of an error, as plain data that can be compared."""
    seen = {} if _seen is None else _seen
    if error is None:
        return None
    if id(error) in seen:
        return f"error {seen[id(error)]}"
    seen[id(error)] = len(seen)
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return {
        "class": (type(error).__module__, type(error).__qualname__, [each.__name__ for each in type(error).__mro__]),
        "str": _asked(str, error),
        "repr": _asked(repr, error),
        "members": [observed(each, seen) for each in members],
        "args": [_seen_value(each, seen) for each in error.args],
        "attributes": {name: _seen_value(value, seen) for name, value in sorted(vars(error).items())},
        "slots": {name: _seen_value(value, seen) for name, value in _slots(error)},
        "fields": {name: _seen_value(value, seen) for name, value in fields_of(error).items()},
        "cause": observed(error.__cause__, seen),
        "context": observed(error.__context__, seen),
        "suppressed": error.__suppress_context__,
    }


def _slots(error: BaseException) -> Iterator[tuple[str, Any]]:
    for name, slot in slots_of(type(error)).items():
        with contextlib.suppress(AttributeError):
            yield name, slot.__get__(error)


def _seen_value(value: Any, seen: dict[int, int]) -> Any:
    if type(value) is Unrecorded:
        return ("unrecorded", *details_of(value))
    if isinstance(value, BaseException):
        return observed(value, seen)
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_seen_value(each, seen) for each in value)]
    if type(value) is dict:
        return {"dict": [(_seen_value(key, seen), _seen_value(each, seen)) for key, each in value.items()]}
    if type(value) in (set, frozenset):
        return (type(value).__name__, sorted(repr(_seen_value(each, seen)) for each in value))
    return (type(value).__name__, repr(value))


def _asked(question: Any, error: BaseException) -> Any:
    try:
        return question(error)
    except Exception as broken:  # noqa: BLE001 - that it raises, and what, can be observed, too
        return (type(broken).__name__, str(broken))
