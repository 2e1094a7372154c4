"""Starts a program again and again, and kills it with SIGKILL at one of its lines, or returns, of the test's choice.

    python -m rig.killed_lines program.py        a life for each kill, and for each kill twice in a row; prints JSON

Each start is a fork of this process, which has imported pgqrs: nothing else of a start is shared.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PROGRAM = "the example"


@dataclass
class Start:
    """One start of the program: where it was killed, what it printed, which steps are recorded after it."""

    place: str | None
    exit_code: int
    printed: list[str]
    recorded: list[str]


@dataclass
class Life:
    """Starts in one folder, one after the other. The last is not killed; nor is the second of two kills at a place
    that a replay does not come to."""

    starts: list[Start] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


class Folder:
    """What a program that is started here leaves behind."""

    def __init__(self, path: Path, code: CodeType) -> None:
        self._path = path
        self._code = code
        self._read = 0

    def start(self, kill_at: int | None = None) -> tuple[Start, int]:
        """The start, and how many places the program came to."""
        pid = os.fork()
        if not pid:
            self._run(kill_at)
        _, status = os.waitpid(pid, 0)
        printed = (self._path / "printed").read_text().splitlines()
        places = (self._path / "places").read_text().splitlines()
        new, self._read = printed[self._read :], len(printed)
        code = os.waitstatus_to_exitcode(status)
        place = None if code == 0 else places[-1]
        return Start(place, code, new, self._column("step_id", "steps")), len(places)

    def statuses(self) -> list[str]:
        return self._column("status", "runs")

    def _column(self, column: str, table: str) -> list[str]:
        file = self._path / "pgqrs.db"
        if not file.exists():
            return []
        connection = sqlite3.connect(file)
        condition = "where status = 'SUCCESS'" if table == "steps" else ""
        try:
            return [row[0] for row in connection.execute(f"select {column} from pgqrs_workflow_{table} {condition}")]
        except sqlite3.OperationalError:
            return []  # killed before the tables were there
        finally:
            connection.close()

    def _run(self, kill_at: int | None) -> None:
        """In the child. Effects and places are in files, which a kill does not take back."""
        code = 1
        try:
            os.chdir(self._path)
            out = os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
            os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            _watch(kill_at, os.open("places", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            exec(self._code, {"__name__": "__main__"})
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the child must end here
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)


def _watch(kill_at: int | None, places: int) -> None:
    """Counts the lines and returns of the program in all threads, and kills the process before the chosen one."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != PROGRAM:
            return None
        if event in ("line", "return"):
            count += 1
            os.write(places, f"{event} {frame.f_lineno}\n".encode())
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def live(code: CodeType, kills: Sequence[int], *, ends: int = 1) -> tuple[Life, int]:
    """A life with these kills and so many starts without; and how many places the last start came to."""
    # In memory: what is synced to a disk matters to a power cut, not to a kill.
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder, life, count = Folder(Path(name), code), Life(), 0
        for kill_at in [*kills, *[None] * ends]:
            start, count = folder.start(kill_at)
            life.starts.append(start)
        life.runs = folder.statuses()
        return life, count


def main(program: str) -> None:
    for module in (
        "pgqrs.blocking",
        "pgqrs.api.inline",
        "pgqrs.db.drivers.sqlite.driver",
        "pgqrs.engine.runs.direct_call",
    ):
        importlib.import_module(module)
    code = compile(Path(program).read_text(), PROGRAM, "exec")
    undisturbed, count = live(code, [])
    lives = [undisturbed]
    for kill_at in range(1, count + 1):
        lives += [live(code, [kill_at])[0], live(code, [kill_at] * 2, ends=2)[0]]
    print(json.dumps([asdict(life) for life in lives]))


if __name__ == "__main__":
    main(sys.argv[1])
