"""The inputs of new runs: bound to the workflow's parameters as far as these are known, and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pgqrs.db.tables.workflows import WorkflowRow
from pgqrs.engine.definitions.binding import Signature, Storable, input_text, storable
from pgqrs.engine.definitions.handlers import decorated
from pgqrs.engine.definitions.input_schema import stored_signature
from pgqrs.errors import InvalidArguments, PgqrsError, SerializationError
from pgqrs.serialization import decode

T = TypeVar("T")


def encoded_inputs(
    found: WorkflowRow, inputs: Iterable[Any], *, max_bytes: int, many: bool = True, code: Signature | None = None
) -> list[str]:
    """Return what is stored for each input; of `many`, an error names the item.

    What the workflow takes is told by its `code` where the caller has that, else by what a worker has stored.
    """
    signature = code or stored_signature(found.name, found.input_schema)

    def encoded(given: Any) -> str:
        try:
            value = storable(given, max_bytes=max_bytes)
        except SerializationError as error:
            raise error.about(f"the input of workflow {found.name!r}") from error.__cause__
        return input_text(signature, value)

    return each_checked(encoded, inputs, many=many)


def storable_inputs(inputs: Sequence[Any], *, max_bytes: int) -> list[Storable]:
    """Return the inputs encoded, or raise what no database can change: a value that cannot be stored."""
    return each_checked(lambda given: storable(given, max_bytes=max_bytes), inputs, many=len(inputs) > 1)


def bound_inputs(found: WorkflowRow, values: Sequence[Storable]) -> list[str]:
    """Return what is stored for each value, or raise InvalidArguments.

    Before a worker has served the workflow, its parameters are known where this process has decorated it.
    """
    signature = stored_signature(found.name, found.input_schema) or decorated.get(found.name)
    return each_checked(lambda value: input_text(signature, value), values, many=len(values) > 1)


def is_stored_as(found: WorkflowRow, value: Storable, text: str | None) -> bool:
    """True when a run that was triggered with this value has this input, whatever was known of the workflow then."""
    texts = [input_text(None, value)]
    with suppress(InvalidArguments):
        texts += bound_inputs(found, [value])
    return decode(text or "null") in [decode(each) for each in texts]


def each_checked(checked: Callable[[Any], T], given: Iterable[Any], *, many: bool = True) -> list[T]:
    """Return what `checked` makes of each item; of `many`, an error names the item."""
    found: list[T] = []
    try:
        for each in given:
            found.append(checked(each))  # noqa: PERF401 - its length is the index
    except PgqrsError as error:
        raise (error.of_item(len(found)) if many else error) from error.__cause__
    return found
