"""The ledger: what happened, outside of the database under test. One O_APPEND write for each line, by any process.

effect     RUN STEP TOKEN       a step's body did something that cannot be undone, under this fence
recorded   RUN STEP TOKEN       the step has returned: what it did is durable
ending     RUN TOKEN            the handler has returned
acked      RUN WORKFLOW NUMBER  `trigger` has returned
result     RUN VALUE            somebody waited for the run, and saw this
enqueued   MESSAGE PAYLOAD      `enqueue` has returned
handled    MESSAGE PAYLOAD TOKEN  a message's handler did something, under this fence
published  RUN NUMBER EVENT     an event was received
late       SECONDS              this process was not let run for so long, by nobody's order
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One line. Times are CLOCK_MONOTONIC's, which all processes of a machine share."""

    at: float
    pid: int
    verb: str
    words: tuple[str, ...]

    @property
    def number(self) -> int:
        """Of the run or the message that it is about."""
        return int(self.words[0])


class Ledger:
    """Appends, and reads what was appended since it last looked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._read = 0

    def note(self, verb: str, *words: object) -> None:
        line = " ".join(map(str, (f"{time.monotonic():.6f}", os.getpid(), verb, *words)))
        os.write(self._file, f"{line}\n".encode())

    def news(self) -> list[Line]:
        with self.path.open("rb") as file:
            file.seek(self._read)
            # A line is one write, but one that crosses a page of the file can be seen half.
            text = file.read().rpartition(b"\n")[0]
        self._read += len(text) + 1 if text else 0
        return list(_lines(text))

    def lines(self) -> list[Line]:
        """All of them."""
        return list(_lines(self.path.read_bytes().rpartition(b"\n")[0]))

    def close(self) -> None:
        os.close(self._file)


def _lines(text: bytes) -> Iterator[Line]:
    for line in text.decode().splitlines():
        at, pid, verb, *words = line.split(" ")
        yield Line(float(at), int(pid), verb, tuple(words))
