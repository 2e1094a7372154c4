"""Healthy databases broken by hand, one fact at a time: what the invariant checker must find.

Statements over what `rig.lives` leaves behind. A crime breaks its own fact and no other invariant.
"""

from __future__ import annotations

# One of each kind.
_SUCCEEDED = "(select max(run_id) from pgqrs_workflow_runs where status = 'SUCCESS')"
_PAUSED = "(select max(run_id) from pgqrs_workflow_runs where status = 'PAUSED' and waiting_for like 'sleep%')"
_CANCELLED_PARENT = "(select max(parent_run_id) from pgqrs_workflow_runs where status = 'CANCELLED')"
_QUEUED = "(select max(message_id) from pgqrs_messages where run_id is null and leased_by is null)"
_WAITS = "(select max(run_id) from pgqrs_workflow_runs where status = 'PAUSED' and waiting_for = 'go')"
_CHILD = """(
    select max(c.run_id) from pgqrs_workflow_runs as c
    where exists (select 1 from pgqrs_workflow_runs as p where p.waiting_for = 'run ' || c.run_id)
)"""
_STEP = f"where run_id = {_SUCCEEDED} and status = 'SUCCESS'"
_OPEN = "where published_at is null and dead_at is null and event_type = 'bad.first'"
_NOBODY = "99999"

_A_MESSAGE = """
    insert into pgqrs_messages (queue_id, payload, run_id, visible_after, enqueued_at, max_attempts)
    select w.queue_id, cast('null' as {json}), r.run_id, r.created_at, r.created_at, r.max_attempts
    from pgqrs_workflow_runs as r
    join pgqrs_workflows as w on w.workflow_id = r.workflow_id"""

# By the question that must find it.
CRIMES: dict[str, tuple[str, ...]] = {
    "runs_without_message": (f"delete from pgqrs_messages where run_id = {_PAUSED}",),
    "messages_in_another_queue": (
        f"""update pgqrs_messages
            set queue_id = (select queue_id from pgqrs_queues where name = 'tasks') where run_id = {_PAUSED}""",
    ),
    "signals_that_woke_nobody": (
        f"""insert into pgqrs_signals (run_id, name, payload, created_at)
            select run_id, 'go', cast('1' as {{json}}), paused_at from pgqrs_workflow_runs where run_id = {_WAITS}""",
    ),
    "children_that_woke_nobody": (
        f"delete from pgqrs_messages where run_id = {_CHILD}",
        f"""update pgqrs_workflow_runs set status = 'CANCELLED', completed_at = updated_at where run_id = {_CHILD}""",
    ),
    "events_after_the_end": (
        f"""insert into pgqrs_workflow_events (run_id, event_type, created_at)
            select run_id, 'resumed', created_at from pgqrs_workflow_runs where run_id = {_SUCCEEDED}""",
    ),
    "ends_of_another_kind": (
        f"""update pgqrs_workflow_events set event_type = 'failed'
            where run_id = {_SUCCEEDED} and event_type = 'succeeded'""",
    ),
    "steps_after_the_end": (
        f"update pgqrs_workflow_steps set completed_at = {{shift completed_at by 10.0}} {_STEP}",
    ),
    "steps_without_result": (f"update pgqrs_workflow_steps set output = null {_STEP}",),
    "failed_steps_without_error": ("update pgqrs_workflow_steps set error = null where status = 'ERROR'",),
    "steps_at_one_place": ("update pgqrs_workflow_steps set ordinal = 0 where step_id = 'each'",),
    "ends_without_result": (f"update pgqrs_workflow_runs set output = null where run_id = {_SUCCEEDED}",),
    "results_without_end": (f"update pgqrs_workflow_runs set output = '1' where run_id = {_PAUSED}",),
    "pauses_since_never": (f"update pgqrs_workflow_runs set paused_at = null where run_id = {_PAUSED}",),
    "messages_of_ended_runs": (f"{_A_MESSAGE} where r.run_id = {_SUCCEEDED}",),
    "tokens_behind_attempts": (f"update pgqrs_messages set attempts = 1, lease_token = 0 where run_id = {_PAUSED}",),
    "archived_without_lease": ("update pgqrs_archived_messages set lease_token = 0",),
    "messages_of_one_run": (
        "drop index {index pgqrs_messages_run}",
        f"{_A_MESSAGE} where r.run_id = {_PAUSED}",
    ),
    "leases_that_differ": ("update pgqrs_workflow_runs set worker_id = 99 where status = 'RUNNING'",),
    "live_and_archived": (
        """insert into pgqrs_archived_messages
            (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_at)
            select message_id, queue_id, payload, priority, enqueued_at, 1, 1, enqueued_at
            from pgqrs_messages where run_id is null""",
    ),
    "attempts_out_of_bounds": (
        f"update pgqrs_messages set attempts = max_attempts + 1 where message_id = {_QUEUED}",
    ),
    "run_attempts_out_of_bounds": (
        f"update pgqrs_workflow_runs set attempt = max_attempts + 1 where run_id = {_PAUSED}",
    ),
    "attempts_that_differ": (f"update pgqrs_messages set max_attempts = max_attempts + 1 where run_id = {_PAUSED}",),
    "events_published_and_dead": (
        """update pgqrs_outbox_events set dead_at = published_at, attempts = 1, last_error = 'no'
            where event_type = 'good.second'""",
    ),
    "events_dead_untried": (f"update pgqrs_outbox_events set dead_at = created_at {_OPEN}",),
    "events_overtaken": ("update pgqrs_outbox_events set published_at = null where event_type = 'good.first'",),
    "events_of_one_id": (
        """update pgqrs_outbox_events
            set event_uuid = (select o.event_uuid from pgqrs_outbox_events as o where o.event_type = 'good.first')
            where event_type = 'good.second'""",
    ),
    "runs_of_one_key": (
        "drop index {index pgqrs_workflow_runs_idempotency}",
        f"update pgqrs_workflow_runs set idempotency_key = 'only' where run_id = {_SUCCEEDED}",
    ),
    "slots_and_runs": ("update pgqrs_schedule_slots set run_id = null where state = 'fired'",),
    "slots_of_one_run": (
        """update pgqrs_schedule_slots
            set run_id = (select min(l.run_id) from pgqrs_schedule_slots as l) where state = 'fired'""",
    ),
    "slots_before_their_time": ("update pgqrs_schedule_slots set created_at = {shift slot_at by -60.0}",),
    "steps_after_the_cancel": (
        f"""update pgqrs_workflow_steps set completed_at = {{shift completed_at by 10.0}}
            where run_id = {_CANCELLED_PARENT} and status = 'SUCCESS'""",
    ),
    "children_after_the_cancel": (
        f"""update pgqrs_workflow_runs set created_at = {{shift created_at by 10.0}}
            where parent_run_id = {_CANCELLED_PARENT}""",
    ),
    "signals_passed_over": (
        """update pgqrs_signals set consumed_at = null
            where signal_id = (select min(s.signal_id) from pgqrs_signals as s where s.consumed_at is not null)""",
    ),
    "signals_without_step": (
        "delete from pgqrs_workflow_steps where step_id = 'wait_for:go' and status = 'SUCCESS'",
    ),
    "messages_without_queue": (f"update pgqrs_messages set queue_id = {_NOBODY} where message_id = {_QUEUED}",),
    "archived_without_queue": (f"update pgqrs_archived_messages set queue_id = {_NOBODY}",),
    "messages_without_run": (f"update pgqrs_messages set run_id = {_NOBODY} where message_id = {_QUEUED}",),
    "steps_without_run": (f"update pgqrs_workflow_steps set run_id = {_NOBODY} where run_id = {_SUCCEEDED}",),
    "signals_without_run": (f"""update pgqrs_signals set run_id = {_NOBODY} where name = 'other'""",),
    "events_without_run": (f"update pgqrs_workflow_events set run_id = {_NOBODY} where run_id = {_SUCCEEDED}",),
    "attributes_without_run": (f"update pgqrs_run_attributes set run_id = {_NOBODY} where name = 'who'",),
    "unpublished_without_run": (f"update pgqrs_outbox_events set aggregate_id = {_NOBODY} {_OPEN}",),
    "runs_without_parent": (f"update pgqrs_workflow_runs set parent_run_id = {_NOBODY} where run_id = {_SUCCEEDED}",),
    "runs_without_workflow": (f"update pgqrs_workflow_runs set workflow_id = {_NOBODY} where run_id = {_SUCCEEDED}",),
}
