"""PostgreSQL: databases whose encoding cannot hold every text, and those whose collation orders names otherwise."""

import contextlib

import asyncpg
import pytest

import pgqrs
from pgqrs.api.operations.workflow_list import workflow_lines
from pgqrs.db.views.throughput import workflows_at_a_glance
from rig.databases import database

pytestmark = pytest.mark.backends("postgres")

NAMES = ["b", "B", "a_x", "a.x", "A-x", "_z", "a1", "Z", "a:x", "ab"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("install", [True, False])
async def test_a_database_that_cannot_hold_every_text_is_refused_at_the_connect(config, encoding, install):
    options = f"encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
    async with database(config.dsn, options=options) as dsn:
        with pytest.raises(pgqrs.ConfigError, match=rf"encoding {encoding}.*encoding 'UTF8'"):
            await pgqrs.connect(dsn, install=install)


@contextlib.asynccontextmanager
async def _ordered_as_in_english(config):
    options = "encoding 'UTF8' template template0 locale_provider icu icu_locale 'en-US'"
    try:
        async with database(config.dsn, options=options) as dsn:
            yield dsn
    except asyncpg.FeatureNotSupportedError:
        pytest.skip("this server knows no collation but that of bytes")


async def test_names_are_listed_in_one_order_whatever_the_collation(config):
    async with (
        _ordered_as_in_english(config) as dsn,
        pgqrs.connect(dsn, install=True, pool_size=2) as store,
    ):
        for name in NAMES:
            await store.create_workflow(name)
            await pgqrs.schedules(store).create(name, name, every=60)
        pages = []
        while page := await workflows_at_a_glance(
            store.database, window=60, limit=3, after=pages[-1] if pages else ""
        ):
            pages += [each.workflow for each in page]

        assert await pgqrs.admin(store).queues() == sorted(NAMES)
        assert [line.workflow for line in await workflow_lines(store)] == sorted(NAMES)
        assert [each.name for each in await pgqrs.schedules(store).list()] == sorted(NAMES)
        assert pages == sorted(NAMES)
