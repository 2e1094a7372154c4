"""The seeds' examples as they are written: only the database that their DSN names is another one."""

from __future__ import annotations

import pytest

import pgqrs

SEED_DSNS = {"postgresql://localhost/mydb", "postgres://localhost/mydb"}


@pytest.fixture(autouse=True)
def known_workflows(monkeypatch):
    """A process of one's own, as far as decorated workflows go: the seeds use the same names with other types."""
    monkeypatch.setattr("pgqrs.api.workflow._known", {})


@pytest.fixture
async def mydb(live_store, connect, monkeypatch, request):
    """`connect("postgresql://localhost/mydb")` in the test's module leads to the test's database, installed before."""

    async def connect_to_the_tests_database(dsn):
        assert dsn in SEED_DSNS
        return await connect(install=False, clock=pgqrs.DatabaseClock())

    monkeypatch.setattr(request.module, "connect", connect_to_the_tests_database)
    return live_store


@pytest.fixture
def default_store(config, connect, monkeypatch):
    """What a call without any store finds in its environment."""
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    monkeypatch.setenv("PGQRS_SCHEMA", config.schema)
    monkeypatch.setenv("PGQRS_POOL_SIZE", "4")
