"""Write the record of an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec

from pgqrs.engine.recorded_errors.annotations import annotated_types, same
from pgqrs.engine.recorded_errors.builtin import (
    args_of,
    attributes_of,
    chain_of,
    fields_of,
    group_of,
    slots_of,
    writes_its_text,
)
from pgqrs.engine.recorded_errors.classes import ClassName, Program, can_be_extended, is_below, mro_of
from pgqrs.engine.recorded_errors.decode import Reader
from pgqrs.engine.recorded_errors.record import NULL, ErrorRecord, HeldValue
from pgqrs.engine.recorded_errors.stand_ins import bases_of_stand_in, original_class
from pgqrs.engine.recorded_errors.texts import message_of, name_of, storable, text_of
from pgqrs.engine.recorded_errors.unrecorded import Unrecorded, details_of
from pgqrs.errors import StepFailed
from pgqrs.serialization import decode, encode

# Of args, attributes and fields, in all errors of one record.
_MOST_BYTES = 64 * 1024
_DEEPEST = 8
# A group may hold thousands of errors, and so may a list.
_MOST_ERRORS = 64
_MOST_ITEMS = 1_000

_NOTES = "__notes__"
# Fields that hold an object of any type; the text of one would not help.
_OBJECTS = frozenset({"obj", "value"})


class _Refusal(Enum):
    """Why a value cannot be recorded: it would not come back as it is, or there is no room for it."""

    KIND = "kind"
    SIZE = "size"


class Writer:
    """Writes one record, and keeps track of the errors and bytes in it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._written: list[tuple[BaseException, ErrorRecord]] = []
        self._numbers: dict[int, int] = {}
        self._bytes = 0

    def record(self, error: BaseException) -> ErrorRecord:
        record = self._write(_as_a_coroutine_raises(error), 0) or ErrorRecord()
        self._check(record)
        return record

    def _check(self, record: ErrorRecord) -> None:
        """Bring everything back once, and note what did not come back as it was: the class, or its text."""
        reader = Reader(self._program, "")
        reader.read(record)
        for (error, written), again in zip(self._written, reader.made, strict=True):
            kind = original_class(type(error))
            if again is None or original_class(type(again)) is not kind or _lost_its_object(error, again):
                written.stand_in = True
                written.bases = [*self._bases(kind)]
            elif writes_its_text(kind) and text_of(error) != text_of(again) and can_be_extended(kind):
                written.says = text_of(error)

    def _write(self, error: BaseException, depth: int) -> ErrorRecord | None:
        """Return the record of an error; None if there are too many already."""
        if id(error) in self._numbers:
            return ErrorRecord(ref=self._numbers[id(error)])
        if depth > _DEEPEST or len(self._written) >= _MOST_ERRORS:
            return None
        kind = original_class(type(error))
        name = self._program.name(kind)
        cause, context, suppressed = chain_of(error)
        record = ErrorRecord(
            type=name_of(kind),
            message=message_of(error),
            module=storable(name.module),
            qualname=storable(name.qualname),
            home=name.home,
            stand_in=not is_below(kind, Exception) or not self._program.knows(kind),
            bases=[self._program.name(each) for each in bases_of_stand_in(type(error))],
            suppress_context=suppressed,
        )
        self._numbers[id(error)] = len(self._written)
        self._written.append((error, record))
        message, exceptions = group_of(error)
        nested = (self._write(each, depth + 1) for each in exceptions)
        record.exceptions = [each for each in nested if each is not None]
        if message is not None:
            record.fields["message"] = self._text(message)
        self._write_values(error, record, kind, depth)
        record.cause = None if cause is None else self._write(cause, depth + 1)
        record.context = None if context is None else self._write(context, depth + 1)
        return record

    def _write_values(self, error: BaseException, record: ErrorRecord, kind: type, depth: int) -> None:
        record.args = [
            self._kept(value, f"args.{index}", record, depth) for index, value in enumerate(args_of(error))
        ]
        hints = annotated_types(kind)
        for name, value in _attributes(error).items():
            if name == _NOTES:
                record.attributes[name] = self._notes(value)
            else:
                self._put(record.attributes, f"attributes.{name}", value, record, depth, hint=hints.get(name))
        for name, value in fields_of(error).items():
            if name in _OBJECTS:
                self._put(record.fields, f"fields.{name}", value, record, depth)
            else:
                record.fields[name] = self._kept(value, f"fields.{name}", record, depth)

    def _put(  # noqa: PLR0917 - the parts of one value
        self, into: dict[str, msgspec.Raw], place: str, value: Any, record: ErrorRecord, depth: int, hint: Any = None
    ) -> None:
        """Record an attribute, or that it could not be recorded."""
        name = place.partition(".")[2]
        written = self._value(value)
        if written is _Refusal.KIND and (held := self._held(value, depth)) is not None:
            record.held[place] = held
            return
        if written is _Refusal.KIND and hint is not None:
            written = self._value(value, hint)
            if isinstance(written, msgspec.Raw):
                record.annotated.append(name)
        if isinstance(written, msgspec.Raw):
            into[name] = written
            return
        record.unstored[place], large = name_of(type(value)), written is _Refusal.SIZE
        if type(value) is Unrecorded:
            _, record.unstored[place], large = details_of(value)
        if large:
            record.too_large.append(place)

    def _kept(self, value: Any, place: str, record: ErrorRecord, depth: int) -> msgspec.Raw:
        """Return an argument as it is, as an equal value of a plain type, or as its text."""
        written = self._value(value)
        if isinstance(written, msgspec.Raw):
            return written
        if written is _Refusal.KIND and (held := self._held(value, depth)) is not None:
            record.held[place] = held
            return NULL
        return self._first_of(_as_plain(value), text_of(value))

    def _text(self, value: Any) -> msgspec.Raw:
        return self._first_of(text_of(value))

    def _notes(self, notes: Any) -> msgspec.Raw:
        kept = [storable(note) for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
        return self._first_of(kept, [])

    def _first_of(self, *values: Any) -> msgspec.Raw:
        for value in values:
            written = self._value(value)
            if isinstance(written, msgspec.Raw):
                return written
        return NULL

    def _value(self, value: Any, hint: Any = Any) -> msgspec.Raw | _Refusal:
        """Return the JSON of a value that comes back equal and of the same type."""
        try:
            text = encode(value)
            is_same = same(value, decode(text, hint))
        except Exception:  # noqa: BLE001 - the value's own code may raise anything
            return _Refusal.KIND
        if not is_same:
            return _Refusal.KIND
        written = text.encode()
        if self._bytes + len(written) > _MOST_BYTES:
            return _Refusal.SIZE
        self._bytes += len(written)
        return msgspec.Raw(written)

    def _held(self, value: Any, depth: int) -> HeldValue | None:
        """Return a value that is or holds errors; None for any other."""
        if is_below(type(value), BaseException):
            error = self._write(value, depth + 1)
            return None if error is None else HeldValue("error", error=error)
        if not _holds_errors(value, _DEEPEST - depth):
            return None
        if type(value) is dict:
            return HeldValue("dict", keys=list(value), items=[self._item(each, depth + 1) for each in value.values()])
        return HeldValue(type(value).__name__, items=[self._item(each, depth + 1) for each in value])

    def _item(self, value: Any, depth: int) -> HeldValue:
        written = self._value(value)
        if isinstance(written, msgspec.Raw):
            return HeldValue("value", written)
        held = self._held(value, depth) if written is _Refusal.KIND else None
        return held or HeldValue("value", self._text(value))

    def _bases(self, kind: type) -> Iterator[ClassName]:
        """Yield the nearest classes that a stand-in for a class can be made of."""
        chosen: list[type] = []
        for each in mro_of(kind)[1:]:
            if not is_below(each, Exception) or is_below(StepFailed, each):
                continue
            if any(is_below(nearer, each) for nearer in chosen):
                continue
            if can_be_extended(each) and self._program.knows(each):
                chosen.append(each)
                yield self._program.name(each)


def _as_a_coroutine_raises(error: BaseException) -> BaseException:
    """Return a StopIteration as Python does when one leaves a coroutine (PEP 479): no `await` could raise it."""
    if not is_below(type(error), StopIteration) and not is_below(type(error), StopAsyncIteration):
        return error
    wrapped = RuntimeError(f"step raised {name_of(type(error))}")
    wrapped.__cause__ = wrapped.__context__ = error
    return wrapped


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return the attributes that an instance has itself, in `__dict__` or in slots, by names that can be stored."""
    found = dict(attributes_of(error))
    for name, slot in slots_of(type(error)).items():
        with contextlib.suppress(AttributeError):
            found[name] = slot.__get__(error)
    return {name: value for name, value in found.items() if type(name) is str and storable(name) == name}


def _holds_errors(value: Any, deep: int) -> bool:
    """Tell whether a list, tuple or dict holds an error, at most `deep` levels down."""
    if is_below(type(value), BaseException):
        return True
    if type(value) not in (list, tuple, dict) or deep <= 0 or len(value) > _MOST_ITEMS:
        return False
    if type(value) is dict:
        if not all(type(key) is str and storable(key) == key for key in value):
            return False
        value = value.values()
    return any(_holds_errors(each, deep - 1) for each in value)


def _as_plain(value: Any) -> Any:
    """Return an equal value of the builtin type that the value's class is derived from, if there is one."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes.__bytes__(value)
        case _:
            return value


def _lost_its_object(error: BaseException, again: BaseException) -> bool:
    """Tell whether a Unicode error came back without the text that it is about; it could not say anything then."""
    return is_below(type(error), UnicodeError) and fields_of(error).keys() != fields_of(again).keys()
