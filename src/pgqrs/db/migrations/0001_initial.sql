-- The tables of DESIGN section 4. One text for every database: tokens stand for what differs.

create table pgqrs_queues (
    queue_id {id},
    name text not null unique,
    created_at {time} not null,
    paused_at {time}
);

-- queue_id is null for a worker that serves many queues by prefix. hostname is the worker's name (seed 001).
create table pgqrs_workers (
    worker_id {id},
    queue_id {ref} references pgqrs_queues (queue_id),
    hostname text not null,
    port integer not null,
    status text not null check (status in ('READY', 'STOPPED')),
    created_at {time} not null,
    heartbeat_at {time} not null,
    stopped_at {time},
    info {json} not null
);
create index pgqrs_workers_queue on pgqrs_workers (queue_id, status);

-- The hot table: only what is live, and narrow. What is done moves to pgqrs_archived_messages
-- (docs/decisions/0001). No foreign keys: enqueueing locks its queue row once per statement instead.
create table pgqrs_messages (
    message_id {id},
    queue_id {ref} not null,
    payload {json} not null,
    run_id {ref},
    priority integer not null default 0,
    visible_after {time} not null,
    enqueued_at {time} not null,
    attempts integer not null default 0,
    max_attempts integer not null,
    lease_token {ref} not null default 0,
    leased_by {ref}
) {hot};
-- What may be leased: a lease reads the head of one range of this index per priority.
create index pgqrs_messages_ready on pgqrs_messages (queue_id, priority desc, visible_after, message_id)
    where attempts < max_attempts;
-- What has been read as often as it may be: in its last lease, or a dead letter once that has run out.
create index pgqrs_messages_exhausted on pgqrs_messages (queue_id, visible_after, message_id)
    where attempts >= max_attempts;
create unique index pgqrs_messages_run on pgqrs_messages (run_id) where run_id is not null;

-- lease_token and archived_by tell a retried archive that it was the one who did it.
create table pgqrs_archived_messages (
    message_id {ref} primary key,
    queue_id {ref} not null,
    payload {json} not null,
    priority integer not null,
    enqueued_at {time} not null,
    attempts integer not null,
    lease_token {ref} not null,
    archived_by {ref},
    archived_at {time} not null
);
create index pgqrs_archived_messages_queue on pgqrs_archived_messages (queue_id, archived_at);

create table pgqrs_workflows (
    workflow_id {id},
    name text not null unique,
    queue_id {ref} not null unique references pgqrs_queues (queue_id),
    created_at {time} not null,
    input_schema {json},
    paused_at {time}
);

create table pgqrs_workflow_runs (
    run_id {id},
    workflow_id {ref} not null references pgqrs_workflows (workflow_id),
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR', 'CANCELLED')),
    input {json},
    output {json},
    error {json},
    last_error text,
    created_at {time} not null,
    started_at {time},
    paused_at {time},
    completed_at {time},
    updated_at {time} not null,
    worker_id {ref},
    attempt integer not null default 0,
    max_attempts integer not null,
    priority integer not null default 0,
    idempotency_key text,
    parent_run_id {ref} references pgqrs_workflow_runs (run_id),
    waiting_for text,
    headers {json},
    attributes {json},
    deleted_at {time},
    delete_reason text
);
create index pgqrs_workflow_runs_workflow on pgqrs_workflow_runs (workflow_id, run_id desc);
create index pgqrs_workflow_runs_status on pgqrs_workflow_runs (status, run_id desc);
create index pgqrs_workflow_runs_parent on pgqrs_workflow_runs (parent_run_id) where parent_run_id is not null;
create unique index pgqrs_workflow_runs_idempotency on pgqrs_workflow_runs (idempotency_key)
    where idempotency_key is not null and deleted_at is null;

-- ordinal is the step's place in its branch: a replay that asks for another step at that place is told so.
create table pgqrs_workflow_steps (
    run_id {ref} not null references pgqrs_workflow_runs (run_id),
    step_id text not null,
    ordinal integer not null,
    status text not null check (status in ('PENDING', 'RUNNING', 'PAUSED', 'SUCCESS', 'ERROR')),
    input {json},
    output {json},
    error {json},
    attempts integer not null default 0,
    started_at {time},
    completed_at {time},
    primary key (run_id, step_id)
);

create table pgqrs_workflow_events (
    event_id {id},
    run_id {ref} not null,
    event_type text not null,
    data {json},
    actor text,
    created_at {time} not null
);
create index pgqrs_workflow_events_run on pgqrs_workflow_events (run_id, event_id);

create table pgqrs_signals (
    signal_id {id},
    run_id {ref} not null references pgqrs_workflow_runs (run_id),
    name text not null,
    payload {json},
    created_at {time} not null,
    consumed_at {time}
);
create index pgqrs_signals_waiting on pgqrs_signals (run_id, name, signal_id) where consumed_at is null;

create table pgqrs_outbox_events (
    event_id {id},
    aggregate_id {ref} not null,
    event_type text not null,
    payload {json} not null,
    created_at {time} not null,
    published_at {time},
    attempts integer not null default 0,
    last_error text
);
create index pgqrs_outbox_events_unpublished on pgqrs_outbox_events (event_id) where published_at is null;

create table pgqrs_schedules (
    schedule_id {id},
    name text not null unique,
    workflow text not null,
    cron text not null,
    timezone text not null default 'UTC',
    input {json},
    overlap text not null default 'skip' check (overlap in ('skip', 'queue', 'cancel')),
    catch_up text not null default 'last' check (catch_up in ('none', 'last', 'all')),
    created_at {time} not null,
    paused_at {time},
    last_slot_at {time},
    next_slot_at {time}
);
create index pgqrs_schedules_next on pgqrs_schedules (next_slot_at) where paused_at is null;
