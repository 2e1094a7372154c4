"""Drivers: the only modules that import a database library."""

from __future__ import annotations

from pgqrs.clock import Clock
from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.distribution import install_command
from pgqrs.errors import ConfigError


async def open_driver(config: Config, clock: Clock) -> Driver:
    """A connected driver for the DSN's backend."""
    match config.backend:
        case "sqlite":
            from pgqrs.db.drivers.sqlite.driver import SQLiteDriver  # noqa: PLC0415 - each backend is optional

            return await SQLiteDriver.open(config, clock)
        case "turso":
            try:
                from pgqrs.db.drivers.turso import TursoDriver  # noqa: PLC0415
            except ImportError as error:
                raise _missing("turso", "pyturso") from error
            return await TursoDriver.open(config, clock)
        case "postgres":
            try:
                from pgqrs.db.drivers.postgres.driver import PostgresDriver  # noqa: PLC0415
            except ImportError as error:
                raise _missing("postgres", "asyncpg") from error
            return await PostgresDriver.open(config, clock)


def _missing(extra: str, package: str) -> ConfigError:
    return ConfigError(f"this DSN needs {package}", hint=f"install it with: {install_command(extra)}")
