"""Programs as people run them: in a process of their own, at a terminal or without one, watched while they run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

PATIENCE_SECONDS = 90.0
# What colours are made of; anything else that begins with an escape commands the terminal.
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def _take_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Program:
    """`with Program("demo") as demo: demo.until("worker"); demo.send("q")`; everything printed is in `text`."""

    def __init__(self, *words, at_terminal=False, cwd=None, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
        self.seen = b""
        ours, its = pty.openpty() if at_terminal else os.pipe()
        self._fd = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pgqrs", *map(str, words)],
            env={**kept, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50", **environment},
            cwd=cwd,
            stdin=its if at_terminal else subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            # A terminal belongs to a session, and Ctrl-C reaches those whose terminal it is.
            start_new_session=True,
            preexec_fn=_take_terminal if at_terminal else None,  # noqa: PLW1509 - one system call
        )
        os.close(its)

    @property
    def text(self):
        return self.seen.decode(errors="replace")

    def until(self, pattern, seconds=PATIENCE_SECONDS):
        """The match, once what was printed holds the pattern."""
        deadline = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.text):
                return found
            assert self._read(deadline - time.monotonic()), f"{pattern!r} was not printed:\n{self.text}"

    def _read(self, seconds):
        """False at the end, and when nothing comes in time."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        try:
            part = os.read(self._fd, 65_536) if ready else b""
        except OSError:
            # How Linux says that the other end of a terminal is closed.
            part = b""
        self.seen += part
        return bool(part)

    def send(self, keys):
        os.write(self._fd, keys.encode())

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, seconds=PATIENCE_SECONDS):
        """Its exit code, once it has ended; reads what it still prints."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._fd)


def is_gone(pid):
    """No such process, or one that nobody has waited for yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def until_gone(pid, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        select.select([], [], [], 0.02)
