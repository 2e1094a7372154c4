"""Turso (beta): the SQLite driver on pyturso, for one process at a time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import turso

from pgqrs.db.drivers.sqlite.driver import SQLiteDriver
from pgqrs.db.drivers.sqlite.file import SQLiteFile, make_for_owner
from pgqrs.errors import ConnectionFailed


class TursoConnection(turso.Connection):
    """Closed, it has let go of the file.

    pyturso keeps the file and its lock until the last cursor is gone, and the traceback of an error holds a cursor:
    other processes would find the file locked, and a forked one would go on with what its parent knew of it.
    """

    def __init__(self, opened: turso.Connection) -> None:
        super().__init__(opened._conn, isolation_level=None)  # noqa: SLF001 - see above

    def close(self) -> None:
        super().close()
        self._conn: Any = None


class TursoFile(SQLiteFile):
    """The same file in the words of pyturso."""

    library = "Turso"
    can_skip_sync = False
    database_error: ClassVar[type[Exception]] = turso.Error
    integrity_error: ClassVar[type[Exception]] = turso.IntegrityError

    def connect(self) -> Any:
        self.claim()
        return self.configured(lambda: TursoConnection(turso.connect(self.path, isolation_level=None)))

    def claim(self) -> None:
        super().claim()
        if not self.in_memory:
            # pyturso would make it for everybody to read, whatever the file is; SQLite does as with the file.
            with suppress(FileExistsError):
                make_for_owner(Path(f"{self.real_path}-wal"))

    @staticmethod
    def is_trouble(error: BaseException) -> bool:
        # What its core lets through outside of its own tree tells of the file (IoError, DatabaseFull).
        outside = type(error).__module__ == "turso" and not isinstance(error, turso.Error)
        return outside or "busy" in str(error).lower() or "database is locked" in str(error).lower()

    def translated(self, error: BaseException, *, in_doubt: bool = False) -> BaseException:
        if type(error).__module__ == "turso" and not isinstance(error, turso.Error):
            # pyturso lets some errors of its core through (IoError, DatabaseFull), outside its own tree.
            text = f"Turso could not use {self.path!r}: {error}; nothing of this call was written"
            failed = ConnectionFailed(text)
            failed.__cause__ = error
            return failed
        if isinstance(error, turso.Error) and "lock" in str(error).lower():
            return ConnectionFailed(f"another process has {self.path!r} open; Turso allows one process at a time")
        return super().translated(error, in_doubt=in_doubt)

    @staticmethod
    def is_busy(error: Exception) -> bool:
        return "busy" in str(error).lower() or "database is locked" in str(error).lower()


class TursoDriver(SQLiteDriver):
    """The writer thread does the reads too: one connection, one process."""

    several_processes = False
    file_class: ClassVar[type[SQLiteFile]] = TursoFile

    def _has_readers(self) -> bool:
        return False
