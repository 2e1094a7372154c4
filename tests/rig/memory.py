"""Temporary files in memory where there is room: SQLite syncs each commit, which takes a disk milliseconds.

Tests of logic do not pull the plug; the proof of power cuts reads system calls, which are the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

FOLDER = Path("/dev/shm")
# The whole suite leaves some hundred megabytes at a time; containers often give 64 MB.
NEEDED_BYTES = 2 * 1024**3


def prefer(folder: Path = FOLDER) -> None:
    """From now on `tempfile`, here and in the processes to come, uses it; but a TMPDIR that was given wins."""
    if "TMPDIR" not in os.environ and _is_fit(folder):
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def _is_fit(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    # Tests write programs there and run them.
    runs_programs = not room.f_flag & os.ST_NOEXEC
    return os.access(folder, os.W_OK) and runs_programs and room.f_bavail * room.f_frsize >= NEEDED_BYTES
