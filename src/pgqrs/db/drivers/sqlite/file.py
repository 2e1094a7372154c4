"""The file of a SQLite database: opening it safely, noticing when it is taken away, saying what went wrong."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pgqrs.db.database import IntegrityViolation
from pgqrs.db.dialect import Dialect
from pgqrs.db.upkeep import promotion_seal
from pgqrs.errors import ConnectionFailed, PgqrsError

T = TypeVar("T")
log: logging.Logger = logging.getLogger("pgqrs.db")

# Another process may hold the file for as long as its own commits take; past this something is wrong there.
BUSY_SECONDS = 60.0
# Beyond this the write-ahead log is cut down as soon as nobody reads from it; if it grows on, somebody does.
LARGEST_LOG_BYTES = 64 * 1024 * 1024
# RETURNING needs 3.35.
OLDEST_SQLITE = (3, 35, 0)
# The commit stands in the log, but the disk did not confirm it. For us it is undone; yet should this process end
# before the next commit goes over it, whoever opens the file then finds it whole, and takes it for done.
UNCONFIRMED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
# The primary codes of what no statement can be blamed for.
TROUBLE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOTADB),
)

_NOTHING_WRITTEN = "nothing of this call was written"


class SQLiteFile:
    """A path, and how its library speaks of it."""

    library = "SQLite"
    # A single commit may leave its sync to the next one.
    can_skip_sync: ClassVar[bool] = True
    database_error: ClassVar[type[Exception]] = sqlite3.Error
    integrity_error: ClassVar[type[Exception]] = sqlite3.IntegrityError

    def __init__(self, path: str) -> None:
        self.path = path
        self.in_memory: bool = path == ":memory:"
        # SQLite keeps the log beside the file itself, not beside a link to it.
        self.real_path: str = os.path.realpath(path)
        self._inodes: dict[str, int] = {}
        self._log_is_large = False

    def connect(self) -> Any:
        """A connection with every pragma set and checked."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConnectionFailed(
                f"SQLite {sqlite3.sqlite_version} is too old", hint=f"pgqrs needs {'.'.join(map(str, OLDEST_SQLITE))}"
            )
        self.claim()
        return self.configured(
            lambda: sqlite3.connect(
                self.path, isolation_level=None, timeout=5, check_same_thread=False, cached_statements=256
            )
        )

    def configured(self, connect: Callable[[], Any]) -> Any:
        connection: Any = None
        try:
            connection = connect()
            self.configure(connection)
        except BaseException as error:  # noqa: BLE001 - raised again at once
            if connection is not None:
                connection.close()
            raise self.translated(error)  # noqa: B904 - it carries its cause
        return connection

    def configure(self, connection: Any) -> None:
        if not self.in_memory:
            mode = self.until_not_busy(lambda: self._pragma(connection, "journal_mode = wal"))
            if mode != "wal":
                raise ConnectionFailed(
                    f"SQLite cannot use write-ahead logging on {self.path!r} (journal mode {mode!r})",
                    hint="put the file on a local disk that this process may write to",
                )
        # FULL: with NORMAL a power cut loses commits that were acknowledged.
        for pragma in ("synchronous = full", "foreign_keys = on", f"journal_size_limit = {LARGEST_LOG_BYTES}"):
            self._pragma(connection, pragma)
        if self._pragma(connection, "foreign_keys") != 1 or self._pragma(connection, "synchronous") != 2:
            raise ConnectionFailed(f"{self.library} did not take foreign_keys=on and synchronous=full")

    @staticmethod
    def _pragma(connection: Any, pragma: str) -> Any:
        row = connection.execute(f"pragma {pragma}").fetchone()
        return row[0] if row else None

    def claim(self) -> None:
        """Make the file for its owner alone: payloads are nobody else's business."""
        if self.in_memory:
            return
        file = Path(self.path)
        if not file.parent.is_dir():
            raise ConnectionFailed(f"the folder {str(file.parent)!r} does not exist", hint="make it first")
        try:
            make_for_owner(file)
        except FileExistsError:
            if file.is_symlink() and not file.exists():
                raise ConnectionFailed(
                    f"{self.path!r} is a link that leads nowhere", hint="name the file itself"
                ) from None
        except OSError as error:
            raise ConnectionFailed(f"cannot create {self.path!r}: {error.strerror}") from error

    def check(self) -> None:
        """A file that was removed or replaced goes on taking commits that nobody will ever read."""
        if self.in_memory:
            return
        size = 0
        # The log last: its size is looked at below.
        for path in (self.real_path, f"{self.real_path}-shm", f"{self.real_path}-wal"):
            try:
                found = Path(path).stat()
                inode, size = found.st_ino, found.st_size
            except FileNotFoundError:
                inode = size = 0
            if self._inodes.setdefault(path, inode) != inode:
                if not self._inodes[path]:
                    self._inodes[path] = inode
                    continue
                raise ConnectionFailed(
                    f"{path!r} was removed or replaced while it was in use; {_NOTHING_WRITTEN}",
                    hint="put it back from a backup if need be, and connect again",
                )
        if (size > LARGEST_LOG_BYTES) != self._log_is_large:
            self._log_is_large = not self._log_is_large
            if self._log_is_large:
                log.warning(
                    "%s-wal has %.0f MB: a connection with a long transaction keeps it from being emptied",
                    self.path,
                    size / 2**20,
                )

    def forget_log(self) -> None:
        """After a connection was closed: the last one takes the log away, and the next one makes another."""
        for path in (f"{self.real_path}-shm", f"{self.real_path}-wal"):
            self._inodes.pop(path, None)

    def seal(self) -> promotion_seal.Seal | None:
        """Asked when a table was not found; on a connection of its own: that which failed is in a transaction."""
        with suppress(Exception), closing(self.connect()) as connection:
            found = connection.execute(promotion_seal.FIND.compiled(Dialect("sqlite"), "named").sql).fetchone()
            return promotion_seal.Seal.read(found[0]) if found else None
        return None

    def until_not_busy(self, step: Callable[[], T]) -> T:
        """Another process has the file: SQLite waits 5 s by itself, and we go on asking after that."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return step()
            except self.database_error as error:
                if not self.is_busy(error) or time.monotonic() > deadline:
                    raise

    @staticmethod
    def is_busy(error: Exception) -> bool:
        # The low byte is the primary code; the others say which kind of busy.
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    @staticmethod
    def is_trouble(error: BaseException) -> bool:
        """Whether it tells of the file or the machine: the engine's error, though the user wrote the statement."""
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in TROUBLE

    @staticmethod
    def is_unconfirmed(error: BaseException) -> bool:
        return getattr(error, "sqlite_errorcode", 0) in UNCONFIRMED

    def translated(self, error: BaseException, *, in_doubt: bool = False) -> BaseException:
        """What a caller should see of an error of the library."""
        if isinstance(error, PgqrsError) or not isinstance(error, self.database_error):
            return error
        if isinstance(error, self.integrity_error):
            return _caused(IntegrityViolation(str(error)), error)
        if promotion_seal.tells_of_no_table(error) and (seal := self.seal()):
            return _caused(seal.error(repr(self.path)), error)
        if self.is_busy(error):
            return _caused(
                ConnectionFailed(f"{self.path!r} was locked by another process for {BUSY_SECONDS:.0f} s"),
                error,
            )
        in_doubt = in_doubt or self.is_unconfirmed(error)
        outcome = "the disk did not confirm it, so it may be written or not" if in_doubt else _NOTHING_WRITTEN
        text = f"{self.library} could not use {self.path!r}: {error}; {outcome}"
        return _caused(ConnectionFailed(text, ambiguous=in_doubt), error)


def make_for_owner(file: Path) -> None:
    """An empty file that nobody else can read; FileExistsError when there is one."""
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600))


def _caused(error: PgqrsError, by: BaseException) -> PgqrsError:
    error.__cause__ = by
    return error
