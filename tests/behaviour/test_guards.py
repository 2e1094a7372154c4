"""The guards of the test rig: each fires at the statement that breaks something, and none at a healthy one."""

import pytest

import pgqrs
from pgqrs.db.queries import Query
from rig import lives
from rig.guards import GUARDS, fired, install_guards

# One statement for each guard that does what must never happen.
CRIMES = {
    "step_changed": "update pgqrs_workflow_steps set output = '2' where status = 'SUCCESS'",
    "step_without_lease": """
        insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, output)
        select min(run_id), 'late', 0, 'SUCCESS', cast('1' as {json}) from pgqrs_workflow_runs""",
    "step_changed_without_lease": "update pgqrs_workflow_steps set attempts = 9 where status = 'PAUSED'",
    "token_sank": "update pgqrs_messages set lease_token = -1",
    "end_undone": "update pgqrs_workflow_runs set status = 'ERROR' where status = 'SUCCESS'",
    "ended_twice": "update pgqrs_workflow_runs set completed_at = completed_at where status = 'SUCCESS'",
    "success_without_lease": "update pgqrs_workflow_runs set status = 'SUCCESS' where status = 'PAUSED'",
    "signal_read_twice": "update pgqrs_signals set consumed_at = created_at where consumed_at is not null",
    "event_published_twice": "update pgqrs_outbox_events set published_at = created_at where published_at is not null",
    "slot_fired_twice": "update pgqrs_schedule_slots set run_id = 0 where state = 'fired'",
}


async def test_no_guard_fires_at_what_is_healthy_and_each_at_the_guilty_statement(store, clock):
    await install_guards(store)
    await install_guards(store)
    await lives.live(store, clock)

    assert set(CRIMES) == {guard.name for guard in GUARDS}
    for guard in GUARDS:
        with pytest.raises(pgqrs.PgqrsError, match=f"guard: {guard.says}"):
            await store.database.execute(Query(guard.name, CRIMES[guard.name]))


async def test_what_a_guard_stops_in_a_worker_is_found_in_the_runs_history(store, run):
    await install_guards(store)

    table = store.database.dialect.table("pgqrs_messages")

    async def handler(ctx, params):
        await ctx.transaction("bad", lambda tx: tx.execute(f"update {table} set lease_token = -1"))

    await run(handler)

    [said, *_] = await fired(store.database)
    assert "guard: the lease token of a message goes down" in said
    await store.database.execute(Query("forget", "delete from pgqrs_workflow_events"))
    await store.database.execute(Query("forget", "update pgqrs_workflow_runs set last_error = null"))
