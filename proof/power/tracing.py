"""strace, beside a program that waits: to write down what it asks of the disk, or to make the disk refuse."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from proof.power.workload import DATABASE, SAID

# What SQLite writes with; what an operating system or a disk may refuse.
FAULTED = ("write", "pwrite64", "fdatasync", "fsync", "ftruncate")
RECORDED = (*FAULTED, "openat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "pwritev", "fallocate")
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")


class NoTracer(Exception):
    """System calls cannot be traced here."""


def check() -> None:
    """Raises NoTracer, saying what to do."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        raise NoTracer("strace is needed (Linux; Debian: apt-get install strace)")
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise NoTracer(f"strace may not trace here (a container needs CAP_SYS_PTRACE): {probe.stderr.strip()}")


@contextmanager
def watched(pid: int, folder: Path, options: Sequence[str]) -> Iterator[Path]:
    """The trace, complete when the block is left; strace is there when it is entered."""
    trace = folder / "trace"
    command = ["strace", "-f", "-o", str(trace), *options, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        if "attached" not in first:
            raise NoTracer(f"strace could not attach: {first.strip()}")
        try:
            yield trace
        finally:
            # It ends when the last thread that it traces has.
            process.communicate()


def recording(folder: Path) -> list[str]:
    """Everything that is asked of the database's files and of their folder, with its data; and what was promised."""
    paths = [*(folder / name for name in (*FILES, SAID)), folder]
    # All of a string, in hexadecimal; and the path behind each descriptor.
    return [f"-etrace={','.join(RECORDED)}", "-s1000000", "-xx", "-y", *(f"-P{path}" for path in paths)]


def refusing(folder: Path, call: str, fault: str, k: int) -> list[str]:
    """The k-th such call of a thread on the database's files is refused, or the last thing that the process does."""
    what = "signal=KILL" if fault == "KILL" else f"error={fault}"
    return [
        f"-etrace={call}",
        f"-einject={call}:{what}:when={k}",
        *(f"-P{folder / name}" for name in FILES),
    ]


def refused(trace: Path) -> int:
    """How many calls were refused or killed."""
    return len(re.findall(r"\(INJECTED\)|^\d+ +\+\+\+ killed by SIGKILL", trace.read_text(), flags=re.MULTILINE))
