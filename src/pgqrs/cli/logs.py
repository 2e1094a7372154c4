"""How a command that goes on for long logs: to standard error, as text for people or JSON for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from pgqrs.cli.output import safe
from pgqrs.cli.state import state


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class TextFormatter(logging.Formatter):
    """One line with its time; what a terminal would take for a command is shown as its escape."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))


@contextmanager
def logging_to_stderr(how: LogFormat) -> Iterator[None]:
    """From warnings on with --quiet, from infos on without; everything of ours with --verbose."""
    root, ours = logging.getLogger(), logging.getLogger("pgqrs")
    before = root.level, ours.level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(how))
    root.addHandler(handler)
    root.setLevel(logging.WARNING if state().quiet else logging.INFO)
    if state().verbose:
        ours.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])


def _formatter(how: LogFormat) -> logging.Formatter:
    if how is LogFormat.text:
        return TextFormatter()
    from pgqrs.telemetry.logs import JsonFormatter

    return JsonFormatter()
