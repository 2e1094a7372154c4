"""Lines for people who watch: `  worker     started`, and with the time since it began `[0:02] run 1 ...`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pgqrs.cli.output import lines


def print_line(line: str) -> None:
    print(line, flush=True)


class Console:
    """What is told goes to `show`: printed, unless somebody has a better place for it."""

    def __init__(self) -> None:
        self.show: Callable[[str], None] = print_line
        self._began = time.monotonic()

    def begin(self) -> None:
        """The clock of `tell` begins anew."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, noun: str, text: str) -> None:
        self.show(lines(f"  {noun:<10} {text}".rstrip(), f"{'':<12}| "))

    def tell(self, text: str) -> None:
        minutes, seconds = divmod(int(self.seconds), 60)
        self.show(lines(f"[{minutes}:{seconds:02}] {text}"))


def is_interactive() -> bool:
    """Somebody sits at a terminal, and sees what is printed."""
    return sys.stdin.isatty() and sys.stdout.isatty()
