"""What a workflow takes, as JSON schema: read from its handler's annotations, for forms that start a run."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec

from pgqrs.engine.registry import Handler

# A form of more than this is no help.
_MOST_CHARACTERS = 20_000


def input_schema(handler: Handler) -> str | None:
    """As the run's input is stored: one argument as it is, several as an object; None when nothing is known of it."""
    if len(handler.parameters) == 1:
        [only] = handler.parameters
        found = _schema(handler.types.get(only.name, Any))
        return _text(found) if found else None
    if not handler.parameters or not handler.types.keys() & {each.name for each in handler.parameters}:
        return None
    parts = {each.name: _schema(handler.types.get(each.name, Any)) or {} for each in handler.parameters}
    defined: dict[str, Any] = {}
    for part in parts.values():
        defined.update(part.pop("$defs", {}))
    required = [each.name for each in handler.parameters if each.default is inspect.Parameter.empty]
    whole = {"type": "object", "properties": parts, "required": required}
    return _text({**whole, "$defs": defined} if defined else whole)


def _schema(kind: Any) -> dict[str, Any] | None:
    """None for what no schema can tell: classes of the user's own, and Any."""
    if kind is Any:
        return None
    try:
        return msgspec.json.schema(kind)
    except (TypeError, ValueError, RecursionError, NameError, AttributeError):
        return None


def _text(schema: dict[str, Any]) -> str | None:
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError):
        # A default that is no JSON.
        return None
    return text if len(text) <= _MOST_CHARACTERS else None
