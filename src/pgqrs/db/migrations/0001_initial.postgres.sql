-- A run from psql, a database trigger or another language, in the caller's own transaction.
-- options: priority, delay (seconds), run_at, max_attempts, attributes. No hint is sent: workers poll.
create function pgqrs_trigger(p_workflow text, p_input json default 'null', p_options json default '{}')
returns bigint
language plpgsql
as $$
declare
    v_workflow bigint;
    v_queue bigint;
    v_run bigint;
    v_priority integer := coalesce((p_options ->> 'priority')::integer, 0);
    v_attempts integer := coalesce((p_options ->> 'max_attempts')::integer, 3);
    v_visible timestamptz := coalesce(
        (p_options ->> 'run_at')::timestamptz,
        statement_timestamp() + coalesce((p_options ->> 'delay')::float8, 0) * interval '1 second'
    );
begin
    select w.workflow_id, w.queue_id into v_workflow, v_queue
    from pgqrs_workflows as w
    where w.name = p_workflow;
    if v_workflow is null then
        raise exception 'no workflow named %', quote_literal(p_workflow)
            using hint = 'create it with store.create_workflow(...)';
    end if;
    insert into pgqrs_workflow_runs
        (workflow_id, status, input, created_at, updated_at, max_attempts, priority, attributes)
    values
        (v_workflow, 'PENDING', p_input, statement_timestamp(), statement_timestamp(), v_attempts, v_priority,
         p_options -> 'attributes')
    returning run_id into v_run;
    insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
    values (v_queue, json_build_object('run_id', v_run), v_run, v_priority, v_visible, statement_timestamp(), v_attempts);
    return v_run;
end
$$;
