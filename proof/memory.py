"""A place in memory for databases and temporary files: what is broken here are processes, not disks."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED = Path("/dev/shm")
# What a server with its log and all databases of a layer need at most; containers often have 64 MB.
_LEAST_BYTES = 4 * 1024**3
# Real disks and their delays are part of it.
ON_DISK = ("chaos",)


def in_memory() -> Path | None:
    """Return a folder in memory, or None where there is none that is large enough."""
    large = _SHARED.is_dir() and shutil.disk_usage(_SHARED).free >= _LEAST_BYTES
    return _SHARED if large and os.access(_SHARED, os.W_OK) else None


@contextmanager
def temporary_files(folder: Path | None) -> Iterator[None]:
    """Until then temporary files of this process and of those it starts are there; None: where they always are.

    Turso makes a folder in TMPDIR for each sort: a quarter of the time of a case was spent in the disk's file system.
    """
    before = os.environ.get("TMPDIR")
    if folder is not None:
        os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    try:
        yield
    finally:
        if before is not None:
            os.environ["TMPDIR"] = before
        elif folder is not None:
            del os.environ["TMPDIR"]
        tempfile.tempdir = None
