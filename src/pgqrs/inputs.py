"""The stored form of a run's input: its arguments by parameter name, with a mark that says so.

    {"$args":"names","order_id":"A1","amount":5}    order.trigger("A1", 5)
    {"$args":"value","params":{"bucket":"b"}}       zip_files.trigger({"bucket": "b"}): it has one parameter
    {"$args":"typed","amount":5}                    names that a person typed before any worker told its parameters
    {"bucket":"b"}                                  one plain value: SQL, an unknown signature, an older version

No value of a user looks so: serialization writes a dict with a key like `$args` as pairs. The mark comes first,
beside the arguments, so that `input->>'amount'` finds them (docs/decisions/0021-arguments-by-name.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pgqrs.errors import SerializationError
from pgqrs.serialization import from_parsed, parsed, same_value, text_of

MARK = "$args"
_BEGIN = f'{{"{MARK}":'


class Form(StrEnum):
    """How a stored input is to be read."""

    # Arguments by name.
    NAMES = "names"
    # The same, of a workflow with one parameter: people are shown the value alone.
    VALUE = "value"
    # Most likely arguments by name: a person typed them, and the parameters were not known.
    TYPED = "typed"
    # One value, or a text that another program wrote: bound when a worker reads it.
    PLAIN = "plain"


class Typed(dict[str, Any]):
    """Names and values that a person typed: arguments, or the fields of the one value that a workflow takes."""


class Stored(NamedTuple):
    """A stored input as parsed JSON, tags not resolved. Every form but PLAIN has an object, without the mark."""

    form: Form
    content: Any
    # Whether there may be a tag anywhere.
    tagged: bool


def marked(form: Form, texts: Mapping[str, str]) -> str:
    """Return the text of arguments, each encoded already."""
    parts = "".join(f",{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in texts.items())
    return f'{_BEGIN}"{form}"{parts}}}'


def read(text: str) -> Stored:
    """Raise SerializationError if the text is broken."""
    content = parsed(text)
    if type(content) is not dict or MARK not in content:
        return Stored(Form.PLAIN, content, '"$' in text)
    try:
        form = Form(content[MARK])
    except ValueError:
        return Stored(Form.PLAIN, content, tagged=True)
    del content[MARK]
    # Our own mark stands at the second character; anything later may be a tag.
    return Stored(form, content, text.find('"$', 2) != -1)


def given(text: str | None) -> Any:
    """Return the input as `run.input` has it: the argument of the one parameter, or a dict by name."""
    if text is None:
        return None
    stored = read(text)
    return from_parsed(_alone(stored), tagged=stored.tagged)


def given_text(text: str) -> str:
    """Return the same as JSON text; a text that cannot be read as it is."""
    if f'"{MARK}"' not in text:
        return text
    try:
        stored = read(text)
    except SerializationError:
        return text
    return text if stored.form is Form.PLAIN else text_of(_alone(stored))


def same_input(one: str, other: str) -> bool:
    """Tell whether two stored inputs give a run the same arguments, in whatever form they are stored."""
    if same_value(one, other):
        return True
    first, second = read(one), read(other)
    if first.form is Form.PLAIN:
        first, second = second, first
    if first.form is Form.PLAIN:
        return False
    if second.form is not Form.PLAIN:
        return _equal(first.content, second.content)
    alone = list(first.content.values()) if len(first.content) == 1 else []
    return _equal(first.content, second.content) or any(_equal(each, second.content) for each in alone)


def _alone(stored: Stored) -> Any:
    """Without the name of the one parameter."""
    if stored.form is Form.VALUE and len(stored.content) == 1:
        return next(iter(stored.content.values()))
    return stored.content


def _equal(one: Any, other: Any) -> bool:
    return same_value(text_of(one), text_of(other))
