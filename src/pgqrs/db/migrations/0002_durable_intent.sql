-- Idempotency, history, outbox, schedules, retention and search (seed 004).

-- What groups failures that are the same: error class and a hash of what stays the same in its message.
alter table pgqrs_workflow_runs add column error_signature text;
-- The failed run that this one was triggered to deal with.
alter table pgqrs_workflow_runs add column dead_letter_of {ref};
-- The workflow that gets a run when one of this workflow's ends in ERROR.
alter table pgqrs_workflows add column dead_letter text;

-- Retention reads its oldest, metrics their newest: what has ended, by workflow and how.
-- run_id tells apart what ended at the same moment, so that retention can go on where it stopped.
create index pgqrs_workflow_runs_ended on pgqrs_workflow_runs (workflow_id, status, completed_at, run_id)
    where completed_at is not null;
create index pgqrs_workflow_runs_signature on pgqrs_workflow_runs (error_signature, run_id desc)
    where error_signature is not null;
create index pgqrs_workflow_runs_deleted on pgqrs_workflow_runs (workflow_id, deleted_at, run_id)
    where deleted_at is not null;
-- With the status in it, a search for one workflow's failures need not walk its successes, nor other workflows' failures.
drop index {index pgqrs_workflow_runs_workflow};
create index pgqrs_workflow_runs_workflow on pgqrs_workflow_runs (workflow_id, status, run_id desc);
-- The text of errors is searched row by row: among the few that have one.
create index pgqrs_workflow_runs_failed on pgqrs_workflow_runs (run_id desc)
    where last_error is not null;
-- With the run in it, a parent's children come newest first.
drop index {index pgqrs_workflow_runs_parent};
create index pgqrs_workflow_runs_parent on pgqrs_workflow_runs (parent_run_id, run_id desc)
    where parent_run_id is not null;
-- A run cannot be deleted without a look for its signals.
create index pgqrs_signals_run on pgqrs_signals (run_id);

-- The short top-level values of a run's attributes, so that it can be found by them.
create table pgqrs_run_attributes (
    name text not null,
    value text not null,
    run_id {ref} not null,
    primary key (name, value, run_id)
);
create index pgqrs_run_attributes_run on pgqrs_run_attributes (run_id);

-- Nothing was ever written to this table before: it is made anew. visible_after and lease_token are the mechanism of
-- messages; event_uuid is the id that receivers see, the same however often an event is sent.
drop table pgqrs_outbox_events;
create table pgqrs_outbox_events (
    event_id {id},
    event_uuid text not null,
    aggregate_id {ref} not null,
    workflow text not null,
    event_type text not null,
    payload {json} not null,
    created_at {time} not null,
    visible_after {time} not null,
    attempts integer not null default 0,
    lease_token {ref} not null default 0,
    last_error text,
    published_at {time},
    dead_at {time}
);
create index pgqrs_outbox_events_due on pgqrs_outbox_events (visible_after, event_id)
    where published_at is null and dead_at is null;
-- Is there an earlier one of the same run that has not been sent?
create index pgqrs_outbox_events_order on pgqrs_outbox_events (aggregate_id, event_id)
    where published_at is null and dead_at is null;
create index pgqrs_outbox_events_published on pgqrs_outbox_events (published_at) where published_at is not null;
create index pgqrs_outbox_events_dead on pgqrs_outbox_events (dead_at) where dead_at is not null;

-- Nothing was ever written to this table either.
drop table pgqrs_schedules;
create table pgqrs_schedules (
    schedule_id {id},
    name text not null unique,
    workflow text not null,
    kind text not null check (kind in ('cron', 'interval', 'once')),
    cron text,
    interval_seconds double precision,
    once_at {time},
    timezone text not null default 'UTC',
    input {json},
    options {json},
    overlap text not null check (overlap in ('allow', 'skip', 'queue', 'cancel')),
    catch_up text not null check (catch_up in ('none', 'last', 'all')),
    catch_up_limit integer not null,
    jitter_seconds double precision not null default 0,
    created_at {time} not null,
    updated_at {time} not null,
    paused_at {time},
    -- Slots up to here are done with, or were never wanted.
    slots_after {time} not null,
    last_slot_at {time},
    last_run_id {ref},
    -- When it is looked at next: its next slot, or after an error the next try.
    next_slot_at {time},
    last_error text
);
create index pgqrs_schedules_next on pgqrs_schedules (next_slot_at)
    where paused_at is null and next_slot_at is not null;

-- One row per slot: its primary key is why a slot fires once, however many workers look.
create table pgqrs_schedule_slots (
    schedule_id {ref} not null,
    slot_at {time} not null,
    state text not null check (state in ('fired', 'queued', 'skipped', 'missed')),
    run_id {ref},
    created_at {time} not null,
    primary key (schedule_id, slot_at)
);
create index pgqrs_schedule_slots_queued on pgqrs_schedule_slots (schedule_id, slot_at) where state = 'queued';

-- How long what has ended is kept; '' stands for every workflow, every status. visible_after: somebody carries it out
-- until then, so that a hundred janitors load the database no more than one.
create table pgqrs_retention (
    what text not null check (what in (
        'runs', 'deleted_runs', 'archived_messages', 'events', 'outbox', 'workers', 'schedule_slots'
    )),
    workflow text not null default '',
    status text not null default '',
    keep_seconds double precision not null,
    visible_after {time} not null,
    primary key (what, workflow, status)
);
