"""The nouns as JSON: what the HTTP API answers with, and what `-o json` prints.

Names are those of the fields, times RFC 3339 in UTC, lengths of time seconds. Values of users are shown as they are
stored, tags included (`{"$datetime": "..."}`), so that nothing is lost and nothing is built from them.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from pgqrs.api.actions import actions_of
from pgqrs.db.tables.runs import RunRow, StepRow
from pgqrs.inputs import given_text
from pgqrs.serialization import encode
from pgqrs.types import RunSummary, Schedule

# Fields of rows that hold JSON text under the name of the value.
TEXTS: dict[type, frozenset[str]] = {
    RunRow: frozenset({"input", "output", "error", "attributes", "progress"}),
    StepRow: frozenset({"input", "output", "error"}),
}
# What runs are given is shown as the caller gave it, without the mark that it is stored with.
INPUTS = frozenset({(RunRow, "input"), (Schedule, "params_text")})


def body(thing: Any) -> Any:  # noqa: PLR0911 - a kind, a line
    """A record, a list of them or a plain value as what `json.dumps` takes."""
    match thing:
        case None | bool() | int() | float():
            return thing
        case Enum():
            return thing.value
        case str():
            return thing
        case datetime():
            return thing.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return thing.total_seconds()
        case dict():
            return {str(body(key)): body(value) for key, value in thing.items()}
        case list() | tuple() | set() | frozenset():
            return [body(each) for each in thing]
    if dataclasses.is_dataclass(thing):
        return _record(thing)
    return json.loads(encode(thing))


def _record(thing: Any) -> dict[str, Any]:
    texts = TEXTS.get(type(thing), frozenset())
    found: dict[str, Any] = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if (type(thing), field.name) in INPUTS:
            found[field.name.removesuffix("_text")] = _stored(None if value is None else given_text(value))
        elif field.name.endswith("_text"):
            found[field.name.removesuffix("_text")] = _stored(value)
        elif field.name in texts:
            found[field.name] = _stored(value)
        else:
            found[field.name] = body(value)
    if isinstance(thing, RunRow | RunSummary):
        found["allowed_actions"] = list(actions_of(thing))
    return found


def _stored(text: str | None) -> Any:
    """A stored text as it is; one that is broken as the text itself, so that people can see it."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return {"$broken": text}
