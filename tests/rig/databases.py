"""A PostgreSQL database with settings of its own, beside the tests' one."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg


@asynccontextmanager
async def database(dsn: str, *, options: str = "", **settings: str) -> AsyncIterator[str]:
    """The DSN of a new, empty database whose sessions have these settings; dropped on the way out."""
    name = f"pgqrs_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        await admin.execute(f"create database {name} {options}")
        for setting, value in settings.items():
            await admin.execute(f"alter database {name} set {setting} = {value}")
        yield urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
    finally:
        await admin.execute(f"drop database if exists {name} with (force)")
        await admin.close()
