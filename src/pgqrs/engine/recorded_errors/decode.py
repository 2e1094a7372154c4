"""Build an error from its record, without running any code of its class."""

from __future__ import annotations

import contextlib
from typing import Any

from pgqrs.engine.recorded_errors.annotations import annotated_types
from pgqrs.engine.recorded_errors.builtin import (
    attributes_of,
    make,
    set_args,
    set_chain,
    set_fields,
    slots_of,
)
from pgqrs.engine.recorded_errors.classes import ClassName, Program, can_be_extended
from pgqrs.engine.recorded_errors.record import NULL, ErrorRecord, HeldValue
from pgqrs.engine.recorded_errors.stand_ins import original_class, say, saying, stand_in_class
from pgqrs.engine.recorded_errors.unrecorded import Unrecorded
from pgqrs.errors import SerializationError, StepFailed
from pgqrs.serialization import decode

_NOTES = "__notes__"


class Reader:
    """Reads one record. `made` are its errors, in the order in which they were written."""

    def __init__(self, program: Program, step_id: str) -> None:
        self._program = program
        self._step_id = step_id
        self.made: list[BaseException | None] = []

    def read(self, record: ErrorRecord) -> BaseException:
        number = len(self.made)
        self.made.append(None)
        exceptions = [each for one in record.exceptions if (each := self._nested(one)) is not None]
        error, is_stand_in = self._make(record, exceptions)
        self.made[number] = error
        held = {place: self._held(each) for place, each in record.held.items()}
        fields = {name: _plain(raw) for name, raw in record.fields.items()} | _at("fields.", held)
        attributes = self._attributes(record, type(error), held)
        unstored = _unstored(record, _owner(record, attributes))
        if is_stand_in:
            self._fill_stand_in(error, record, attributes, unstored["attributes"])
        else:
            set_args(error, self._args(record, held))
            _set_attributes(error, attributes | unstored["attributes"])
        set_fields(error, fields | unstored["fields"])
        set_chain(
            error,
            cause=self._nested(record.cause),
            context=self._nested(record.context),
            suppressed=record.suppress_context,
        )
        return error

    def _nested(self, record: ErrorRecord | None) -> BaseException | None:
        if record is None:
            return None
        if record.ref is None:
            return self.read(record)
        return self.made[record.ref] if 0 <= record.ref < len(self.made) else None

    def _held(self, held: HeldValue) -> Any:
        match held.kind:
            case "error":
                return self._nested(held.error)
            case "list":
                return [self._held(each) for each in held.items]
            case "tuple":
                return tuple(self._held(each) for each in held.items)
            case "dict":
                return dict(zip(held.keys, map(self._held, held.items), strict=False))
            case _:
                return _plain(held.value)

    def _make(self, record: ErrorRecord, exceptions: list[BaseException]) -> tuple[BaseException, bool]:
        """Return an error without contents, and whether it is a stand-in."""
        message = _plain(record.fields.get("message", NULL))
        text = message if isinstance(message, str) else ""
        kind = self._class_of(record)
        if kind is not None:
            with contextlib.suppress(Exception):
                error = make(kind, message=text, exceptions=exceptions)
                if record.says is not None and original_class(kind) is not kind:
                    say(error, record.says)
                return error, False
        with contextlib.suppress(Exception):
            return make(stand_in_class(self._bases(record)), message=text, exceptions=exceptions), True
        return make(StepFailed, message="", exceptions=()), True

    def _class_of(self, record: ErrorRecord) -> type[Exception] | None:
        if record.stand_in:
            return None
        if record.module is None or record.qualname is None:
            return self._program.plainly_named(record.type or "Exception")
        kind = self._program.find(ClassName(record.module, record.qualname, home=record.home))
        if kind is StepFailed and record.bases:
            return stand_in_class(self._bases(record))
        if kind is not None and record.says is not None and can_be_extended(kind):
            return saying(kind)
        return kind

    def _bases(self, record: ErrorRecord) -> list[type[Exception]]:
        found = map(self._program.find, record.bases)
        return [each for each in found if each is not None and can_be_extended(each)]

    def _args(self, record: ErrorRecord, held: dict[str, Any]) -> list[Any]:
        if record.module is None:
            return [record.message or ""]
        return [held.get(f"args.{index}", _plain(raw)) for index, raw in enumerate(record.args)]

    def _attributes(self, record: ErrorRecord, kind: type, held: dict[str, Any]) -> dict[str, Any]:
        found = {name: _plain(raw) for name, raw in record.attributes.items()}
        hints = annotated_types(original_class(kind)) if record.annotated else {}
        for name in record.annotated:
            if name in hints and name in found:
                with contextlib.suppress(SerializationError):
                    found[name] = decode(bytes(record.attributes[name]).decode(), hints[name])
        found |= _at("attributes.", held)
        notes = found.get(_NOTES, [])
        if type(notes) is not list or not all(type(note) is str for note in notes):
            del found[_NOTES]
        return found

    def _fill_stand_in(
        self, error: BaseException, record: ErrorRecord, attributes: dict[str, Any], unstored: dict[str, Any]
    ) -> None:
        kind = (record.qualname or record.type or "Exception").rpartition("<locals>.")[2]
        notes = {_NOTES: attributes.pop(_NOTES)} if _NOTES in attributes else {}
        plain = StepFailed(self._step_id, kind=kind, message=record.message or "", attributes=attributes)
        set_args(error, plain.args)
        _set_attributes(error, notes | attributes | unstored | vars(plain))


def _plain(raw: Any) -> Any:
    try:
        return decode(bytes(raw).decode())
    except SerializationError:
        return None


def _at(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {place[len(prefix) :]: value for place, value in values.items() if place.startswith(prefix)}


def _owner(record: ErrorRecord, attributes: dict[str, Any]) -> str:
    """Return the name of the class that an error was raised with, also if a stand-in of it was recorded."""
    kind = attributes.get("kind") if record.type == StepFailed.__name__ else record.type
    return str(kind).rpartition(".")[2]


def _unstored(record: ErrorRecord, owner: str) -> dict[str, dict[str, Unrecorded]]:
    """Return placeholders for the attributes of the class `owner`, and for its fields, that were not recorded."""
    found: dict[str, dict[str, Unrecorded]] = {"attributes": {}, "fields": {}}
    for place, kind in record.unstored.items():
        where, _, name = place.partition(".")
        if where in found and name != _NOTES:
            found[where][name] = Unrecorded(f"{owner}.{name}", kind, large=place in record.too_large)
    return found


def _set_attributes(error: BaseException, attributes: dict[str, Any]) -> None:
    slots = slots_of(type(error))
    namespace = attributes_of(error)
    for name, value in attributes.items():
        if name in slots:
            slots[name].__set__(error, value)
        else:
            namespace[name] = value
