"""The nouns as JSON: what the HTTP API answers with, and what `-o json` prints.

Names are those of the fields, times RFC 3339 in UTC, lengths of time seconds. Values of users are shown as they are
stored, tags included (`{"$datetime": "..."}`), so that nothing is lost and nothing is built from them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from pgqrs.api.operations.run_actions import actions_of
from pgqrs.api.operations.stored_json import stored
from pgqrs.db.runs.history import EventRow
from pgqrs.db.tables.runs import RunRow, StepRow
from pgqrs.inputs import given_text
from pgqrs.serialization import encode
from pgqrs.types import RunSummary, Schedule

# Fields of rows that hold JSON text under the name of the value.
TEXTS: dict[type, frozenset[str]] = {
    RunRow: frozenset({"input", "output", "error", "attributes", "progress"}),
    StepRow: frozenset({"input", "output", "error"}),
    EventRow: frozenset({"data"}),
}
# What runs are given is shown as the caller gave it, without the mark that it is stored with.
INPUTS = frozenset({(RunRow, "input"), (Schedule, "params_text")})


def to_json(thing: Any, *, raw: bool = False, cut: int | None = None) -> Any:  # noqa: C901, PLR0911 - a kind, a line
    """A record, a list of them or a plain value as what `json.dumps` takes.

    With `raw`, stored JSON stays the text that it is, for `msgspec.json.encode`. With `cut`, no text of a record has
    more characters; `truncated` names those that had.
    """
    match thing:
        case None | bool() | int():
            return thing
        case float():
            # JSON has neither infinity nor NaN.
            return thing if math.isfinite(thing) else None
        case Enum():
            return thing.value
        case str():
            return thing
        case datetime():
            return thing.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return thing.total_seconds()
        case dict():
            return {str(to_json(key)): to_json(value, raw=raw, cut=cut) for key, value in thing.items()}
        case list() | tuple() | set() | frozenset():
            return [to_json(each, raw=raw, cut=cut) for each in thing]
        case msgspec.Raw():
            return thing
    if dataclasses.is_dataclass(thing):
        return _record(thing, raw=raw, cut=cut)
    return json.loads(encode(thing))


def _record(thing: Any, *, raw: bool, cut: int | None) -> dict[str, Any]:
    texts = TEXTS.get(type(thing), frozenset())
    found: dict[str, Any] = {}
    truncated: list[str] = []
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        name = field.name.removesuffix("_text")
        if cut is not None and isinstance(value, str) and len(value) > cut:
            # The beginning of a text is no JSON any more, so it stands here as text.
            found[name] = value[:cut]
            truncated.append(name)
        elif (type(thing), field.name) in INPUTS:
            found[name] = stored(None if value is None else given_text(value), raw=raw)
        elif name != field.name or name in texts:
            found[name] = stored(value, raw=raw)
        else:
            found[name] = to_json(value, raw=raw)
    if isinstance(thing, RunRow | RunSummary):
        found["allowed_actions"] = list(actions_of(thing))
    if truncated:
        found["truncated"] = truncated
    return found
