-- As before, and: idempotency_key in the options (the run that has it is given, when its input is the same), the
-- event of its creation (unless options say "audit": "none"), and attributes by which it is found.
create or replace function pgqrs_trigger(p_workflow text, p_input json default 'null', p_options json default '{}')
returns bigint
language plpgsql
as $$
declare
    v_workflow bigint;
    v_queue bigint;
    v_run bigint;
    v_found pgqrs_workflow_runs%rowtype;
    v_key text := p_options ->> 'idempotency_key';
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
    -- A run that has the key may be deleted between the look and the insert, and the other way round.
    for v_try in 1..3 loop
        insert into pgqrs_workflow_runs
            (workflow_id, status, input, created_at, updated_at, max_attempts, priority, attributes, idempotency_key)
        values
            (v_workflow, 'PENDING', p_input, statement_timestamp(), statement_timestamp(), v_attempts, v_priority,
             p_options -> 'attributes', v_key)
        on conflict (idempotency_key) where idempotency_key is not null and deleted_at is null do nothing
        returning run_id into v_run;
        exit when v_run is not null;
        select * into v_found
        from pgqrs_workflow_runs as r
        where r.idempotency_key = v_key and r.deleted_at is null;
        if v_found.run_id is not null then
            if v_found.workflow_id <> v_workflow or v_found.input::jsonb is distinct from p_input::jsonb then
                raise exception 'idempotency key % belongs to run %, which has another input',
                    quote_literal(v_key), v_found.run_id;
            end if;
            return v_found.run_id;
        end if;
    end loop;
    if v_run is null then
        raise exception 'idempotency key % is being used by somebody else just now; try again', quote_literal(v_key);
    end if;
    insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
    values (v_queue, json_build_object('run_id', v_run), v_run, v_priority, v_visible, statement_timestamp(), v_attempts);
    if coalesce(p_options ->> 'audit', 'normal') <> 'none' then
        insert into pgqrs_workflow_events (run_id, event_type, created_at)
        values (v_run, 'created', statement_timestamp());
    end if;
    insert into pgqrs_run_attributes (name, value, run_id)
    select a.key, a.value, v_run
    from json_each_text(coalesce(p_options -> 'attributes', '{}')) as a
    where json_typeof(p_options -> 'attributes' -> a.key) not in ('object', 'array')
      and length(a.key) <= 200
      and length(a.value) <= 200;
    return v_run;
end
$$;
