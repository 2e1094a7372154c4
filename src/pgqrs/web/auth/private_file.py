"""Small files for their owner alone: refused when others may touch them, changed under a lock, replaced whole."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgqrs.errors import ConfigError

# What a file looked like when it was read; another mark means that it has changed. Its mode and its owner are in it:
# `chmod` leaves the text and its time as they are.
Mark = tuple[int, ...]


def mark_of(path: Path) -> Mark | None:
    """Return what tells this state of the file from the next one; None when there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid


def read_private(path: Path) -> str | None:
    """Return the text, None when there is no file; raise ConfigError when anyone but its owner may touch it."""
    try:
        # Without waiting: a pipe that another user has put there would be waited for forever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, encoding="utf-8") as file:
        # Of the file that is open: another one may have its name by now.
        _check(path, os.fstat(file.fileno()))
        try:
            return file.read()
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not a text file", hint="remove it, and make new tokens") from None


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} must be a file", hint="name another one")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(
            f"{path} has mode {mode:04o}, so other users may read or change it", hint=f"chmod 600 {path}"
        )
    if hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to another user (uid {found.st_uid}), who may change it", hint="chown it")


def replace_private(path: Path, text: str) -> None:
    """Write all of it or nothing, with mode 0600; durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp makes the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep every other process from changing the file until this ends: read it, change it and replace it within."""
    import fcntl  # noqa: PLC0415 - where it is missing, files can still be read

    path.parent.mkdir(parents=True, exist_ok=True)
    # A file of its own: the lock of a file that is replaced would stay with the one that is gone.
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
