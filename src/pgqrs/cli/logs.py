"""How a command that goes on for long logs: to standard error, as text for people or JSON for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from pgqrs.cli.output import lines
from pgqrs.cli.state import state


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class TextFormatter(logging.Formatter):
    """A line with its time; what a terminal would take for a command is shown as its escape.

    Every further line, of a message or a trace, has a margin: nothing that is logged can pass for another record.
    """

    def __init__(self, form: str = "%(asctime)s %(levelname)-7s %(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        return lines(super().format(record))


def show_warnings_safely() -> None:
    """What a command logs that has set up no logging: Python prints warnings of it as they are."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TextFormatter("%(message)s"))


@contextmanager
def logging_to_stderr(how: LogFormat, *, always: Sequence[str] = ()) -> Iterator[None]:
    """From warnings on with --quiet, from infos on without; everything of ours with --verbose.

    What loggers named in `always` say is logged with --quiet, too.
    """
    root, ours = logging.getLogger(), logging.getLogger("pgqrs")
    before = root.level, ours.level
    for name in always:
        logging.getLogger(name).setLevel(logging.INFO)
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
