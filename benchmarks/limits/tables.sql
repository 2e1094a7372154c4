-- The least that a queue and a workflow engine need: jobs with a lease, steps with a result.
drop table if exists jobs, steps;
create table jobs (
    id bigint generated always as identity primary key,
    payload json not null,
    visible_after timestamptz not null default now(),
    attempts integer not null default 0,
    done boolean not null default false
) with (fillfactor = 70);
create index jobs_ready on jobs (id) where attempts = 0;
create table steps (
    run_id bigint not null,
    step_id text not null,
    status text not null,
    output json,
    completed_at timestamptz not null default now(),
    primary key (run_id, step_id)
);
create sequence if not exists runs;
