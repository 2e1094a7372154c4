"""From a DSN to a store."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from pgqrs.api.store import BorrowingStore, Store
from pgqrs.clock import Clock, DatabaseClock, ManualClock
from pgqrs.config import Config, Settings
from pgqrs.db import migrations, stand_ins
from pgqrs.db.drivers import open_driver
from pgqrs.errors import ConfigError, SchemaMismatch, SchemaNotInstalled


def connect(
    dsn: str | None = None, *, install: bool = False, clock: Clock | None = None, **settings: Unpack[Settings]
) -> Connecting:
    """A store on the database that the DSN names: `await connect(...)` or `async with connect(...) as store`.

    Without a DSN it is `PGQRS_DSN`, else `sqlite:///pgqrs.db`; in a test with the testing kit, the kit's database.
    Settings are the fields of `Config`.
    """
    known = [field.name for field in dataclasses.fields(Config)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            raise ConfigError(f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    given: dict[str, Any] = {**settings}
    if dsn is None:
        return connect_with(Config(**given), install=install, clock=clock)
    return Connecting(Config(dsn, **given), install=install, clock=clock or DatabaseClock())


def connect_with(config: Config, *, install: bool = False, clock: Clock | None = None) -> Connecting:
    """As `connect`, with every setting in one `Config`."""
    if (stand_in := stand_ins.current()) is not None and config.dsn == Config().dsn:
        return Connecting(stand_in.settings_for(config), install=True, clock=stand_in.clock, stand_in=stand_in)
    return Connecting(config, install=install, clock=clock or DatabaseClock())


class Connecting:
    """A store that is about to be: awaited it is yours to close, as a context it closes itself."""

    def __init__(
        self, config: Config, *, install: bool, clock: Clock, stand_in: stand_ins.StandIn | None = None
    ) -> None:
        self._config = config
        self._stand_in = stand_in
        self._install = install
        self._clock = clock
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()

    if not TYPE_CHECKING:
        # Type checkers say so themselves, if they do not know of this.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"not connected yet, so there is no {name!r}: use `store = await pgqrs.connect(...)`, "
                "or `async with pgqrs.connect(...) as store`"
            )

    async def _open(self) -> Store:
        if self._stand_in is not None and (lent := await self._stand_in.lent()) is not None:
            return BorrowingStore(self._config, lent)
        db = await open_driver(self._config, self._clock)
        try:
            if self._stand_in is None or not self._stand_in.is_installed:
                # A file gets its tables by itself; on a server, `pgqrs install` or `install=True` makes them.
                if self._install or not db.dialect.is_postgres:
                    await migrations.install(db)
                await self._refuse_newer(db, self._config.safe_dsn)
        except BaseException:
            await db.close()
            raise
        if isinstance(self._clock, ManualClock):
            self._clock.on_advance(db.hints.wake)
        return Store(self._config, db)

    @staticmethod
    async def _refuse_newer(db: Any, where: str) -> None:
        """Missing and older schemas may connect, so that `admin.install` can be called.

        Newer ones may not, nor those of another program, which have no version of ours.
        """
        try:
            await migrations.check(db, where=where)
        except SchemaNotInstalled:
            pass
        except SchemaMismatch as error:
            if error.found > error.expected or error.found == 0:
                raise
