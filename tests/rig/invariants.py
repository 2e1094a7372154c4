"""What must hold of any database after any test."""

from __future__ import annotations

import pgqrs
from pgqrs.clock import DatabaseClock
from pgqrs.db import migrations
from pgqrs.db.database import Kind
from pgqrs.db.drivers import open_driver
from pgqrs.db.queries import Query

# Each answers with the rows that break it.
INVARIANTS = {
    "no message is live and archived": """
        select m.message_id from pgqrs_messages as m
        where exists (select 1 from pgqrs_archived_messages as a where a.message_id = m.message_id)""",
    "attempts lie between 0 and max_attempts": """
        select message_id from pgqrs_messages where attempts < 0 or attempts > max_attempts""",
    "the token is at least the number of attempts": """
        select message_id from pgqrs_messages where lease_token < attempts and lease_token > 0""",
    "every live message has its queue": """
        select m.message_id from pgqrs_messages as m
        where not exists (select 1 from pgqrs_queues as q where q.queue_id = m.queue_id)""",
    "no event of the outbox is published and dead": """
        select event_id from pgqrs_outbox_events where published_at is not null and dead_at is not null""",
    "a slot has fired when it has a run, and only then": """
        select slot_at from pgqrs_schedule_slots where (state = 'fired') <> (run_id is not null)""",
    "every archived message has its queue": """
        select a.message_id from pgqrs_archived_messages as a
        where not exists (select 1 from pgqrs_queues as q where q.queue_id = a.queue_id)""",
    "every step has its run": """
        select x.run_id from pgqrs_workflow_steps as x
        where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = x.run_id)""",
    "every signal has its run": """
        select x.run_id from pgqrs_signals as x
        where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = x.run_id)""",
    "every event has its run": """
        select x.run_id from pgqrs_workflow_events as x
        where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = x.run_id)""",
    "every attribute has its run": """
        select x.run_id from pgqrs_run_attributes as x
        where not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = x.run_id)""",
    "every message of a run has its run": """
        select m.run_id from pgqrs_messages as m
        where m.run_id is not null
          and not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = m.run_id)""",
    "every parent is there": """
        select c.run_id from pgqrs_workflow_runs as c
        where c.parent_run_id is not null
          and not exists (select 1 from pgqrs_workflow_runs as r where r.run_id = c.parent_run_id)""",
}


async def check_invariants(config: pgqrs.Config) -> None:
    """Raises AssertionError naming what is broken, and where."""
    db = await open_driver(config, DatabaseClock())
    try:
        if await migrations.version(db) != migrations.latest_version():
            return
        for fact, sql in INVARIANTS.items():
            rows = await db.fetch(Query(fact, sql))
            assert not rows, f"not true that {fact}: {[tuple(row) for row in rows[:5]]}"
        if not db.dialect.is_postgres:
            for pragma, healthy in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                found = await db.perform(
                    lambda unit, pragma=pragma: unit.fetch(Query(pragma, f"pragma {pragma}")),
                    kind=Kind.UNIT,
                    idempotent=True,
                )
                assert [tuple(row) for row in found] == healthy, f"{pragma}: {found}"
    finally:
        await db.close()
