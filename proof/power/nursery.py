"""Programs to be broken: forked from a process that has everything loaded, and held until they are watched.

The process that forks is `proof/power/forking.py`. The child waits at the place named until it is let go, so that
strace can be put beside it in the middle of its work. A fork takes some 30 ms, a fresh interpreter ten times that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof import ROOT

GATE = "gate"
# What a child ends with when it saw an error; 0 when it got through.
SAW_AN_ERROR = 3
HELD = "held\n"


class Nursery:
    """The process that forks, seen from the harness: one child at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fork(self, folder: Path, *, place: str = "create", synchronous: str = "full") -> int:
        """A child that has come to that place, and waits there; its process id."""
        os.mkfifo(folder / GATE)
        self._ask(json.dumps([str(folder), synchronous, place]))
        pid, answer = int(self._answer()), self._answer()
        assert answer == HELD, f"the child ended before it came to {place!r}: {answer}"
        return pid

    def wait(self) -> int:
        """How the child ended: an exit code, or a signal below zero."""
        return int(self._answer())

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process that forks is gone"
        return answer


@contextmanager
def nursery() -> Iterator[Nursery]:
    path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "proof.power.forking"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Nursery(process)
        finally:
            # It ends with its input.
            process.communicate()


def let_go(folder: Path) -> None:
    """The child goes on from where it waits."""
    (folder / GATE).write_bytes(b"")
