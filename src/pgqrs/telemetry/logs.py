"""Logs as JSON: one object a line, for programs that collect them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

# What every record has; all else was added by whoever logged it.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """`time` (RFC 3339, UTC), `level`, `logger`, `message`, `exception`, and what was given as `extra`.

    Everything is ASCII with escapes: no text of a user breaks a line, or reaches a terminal as a command.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            shown["stack"] = self.formatStack(record.stack_info)
        shown |= _current_span()
        added = {name: value for name, value in vars(record).items() if name not in _USUAL and name not in shown}
        try:
            return json.dumps({**shown, **added}, default=_text, skipkeys=True, allow_nan=False)
        except (ValueError, RecursionError):
            # A value that holds itself, or no number: a log line is never lost for that.
            return json.dumps({**shown, **{name: _text(value) for name, value in added.items()}})


def _current_span() -> dict[str, str]:
    """The trace that the line belongs to, if this process has any."""
    trace = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - its `__str__` is the user's, and may do anything
        return f"(its text could not be made: {type(error).__name__})"
