-- As before, and: it refuses what `trigger` in Python refuses, with the option and its value in the message, before
-- anything is written. No function of the caller's search path runs in it. Options may also have max_payload_bytes, for
-- applications whose Config has another limit than the default.
create or replace function pgqrs_trigger(p_workflow text, p_input json default 'null', p_options json default '{}')
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c_known constant text[] := array[
        'priority', 'delay', 'run_at', 'max_attempts', 'attributes', 'idempotency_key', 'audit', 'max_payload_bytes'
    ];
    -- Invisible characters, as Python's isprintable has them, the rarest left out.
    c_unprintable constant text :=
        '[[:cntrl:]\u00a0\u00ad\u0600-\u0605\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff]';
    v_options json := coalesce(p_options, '{}');
    v_input json := coalesce(p_input, 'null');
    v_workflow bigint;
    v_queue bigint;
    v_run bigint;
    v_found pgqrs_workflow_runs%rowtype;
    v_unknown text;
    v_key text;
    v_attributes json;
    v_priority integer := 0;
    v_attempts integer := 3;
    v_delay float8 := 0;
    v_most bigint := 2097152;
    v_moment timestamptz;
    v_visible timestamptz;
begin
    if json_typeof(v_options) <> 'object' then
        raise exception 'options must be an object such as {"priority": 5}, not %', left(v_options::text, 60)
            using errcode = 'invalid_parameter_value';
    end if;
    select o.key into v_unknown from json_each(v_options) as o where o.key <> all (c_known) limit 1;
    if v_unknown is not null then
        raise exception 'pgqrs_trigger does not know the option %', quote_literal(left(v_unknown, 60))
            using errcode = 'invalid_parameter_value', hint = 'it takes ' || array_to_string(c_known, ', ');
    end if;

    if v_options ->> 'priority' is not null then
        if v_options ->> 'priority' !~ '^-?[0-9]{1,10}$'
            or (v_options ->> 'priority')::bigint not between -2147483648 and 2147483647 then
            raise exception 'priority must be a whole number from -2,147,483,648 to 2,147,483,647, not %',
                left(v_options ->> 'priority', 60) using errcode = 'invalid_parameter_value';
        end if;
        v_priority := (v_options ->> 'priority')::integer;
    end if;
    if v_options ->> 'max_attempts' is not null then
        if v_options ->> 'max_attempts' !~ '^[0-9]{1,10}$'
            or (v_options ->> 'max_attempts')::bigint not between 1 and 2147483647 then
            raise exception 'max_attempts must be a whole number from 1 to 2,147,483,647, not %',
                left(v_options ->> 'max_attempts', 60) using errcode = 'invalid_parameter_value';
        end if;
        v_attempts := (v_options ->> 'max_attempts')::integer;
    end if;
    if v_options ->> 'delay' is not null then
        if v_options ->> 'delay' !~ '^[0-9]{1,20}([.][0-9]{1,30})?([eE][-+]?[0-9]{1,2})?$'
            or (v_options ->> 'delay')::float8 > 3155760000 then
            raise exception 'delay must be seconds from 0 to 100 years, not %', left(v_options ->> 'delay', 60)
                using errcode = 'invalid_parameter_value';
        end if;
        v_delay := (v_options ->> 'delay')::float8;
    end if;
    if v_options ->> 'run_at' is not null then
        if v_delay > 0 then
            raise exception 'give either delay or run_at, not both' using errcode = 'invalid_parameter_value';
        end if;
        v_moment := (v_options ->> 'run_at')::timestamptz;
        if v_moment < timestamptz '1970-01-01 UTC' or v_moment >= timestamptz '2971-01-01 UTC' then
            raise exception 'run_at must lie between the years 1970 and 2970, not %', left(v_options ->> 'run_at', 60)
                using errcode = 'invalid_parameter_value';
        end if;
    end if;
    if v_options ->> 'idempotency_key' is not null then
        v_key := v_options ->> 'idempotency_key';
        if length(v_key) not between 1 and 500 or v_key ~ c_unprintable then
            raise exception 'idempotency key % is not allowed', quote_literal(left(v_key, 60))
                using errcode = 'invalid_parameter_value', hint = 'use 1 to 500 printable characters';
        end if;
    end if;
    if coalesce(v_options ->> 'audit', 'normal') not in ('none', 'normal', 'full') then
        raise exception 'audit must be one of none, normal, full, not %', left(v_options ->> 'audit', 60)
            using errcode = 'invalid_parameter_value';
    end if;
    if v_options ->> 'max_payload_bytes' is not null then
        if v_options ->> 'max_payload_bytes' !~ '^[0-9]{1,10}$' then
            raise exception 'max_payload_bytes must be a whole number, not %',
                left(v_options ->> 'max_payload_bytes', 60) using errcode = 'invalid_parameter_value';
        end if;
        v_most := (v_options ->> 'max_payload_bytes')::bigint;
    end if;
    if json_typeof(v_options -> 'attributes') not in ('object', 'null') then
        raise exception 'attributes must be an object such as {"customer": "c42"}, not %',
            left((v_options -> 'attributes')::text, 60) using errcode = 'invalid_parameter_value';
    end if;
    if json_typeof(v_options -> 'attributes') = 'object' then
        v_attributes := v_options -> 'attributes';
    end if;
    if octet_length(v_input::text) > v_most or octet_length(v_attributes::text) > v_most then
        raise exception 'the payload takes % bytes, the limit is %',
            greatest(octet_length(v_input::text), octet_length(v_attributes::text)), v_most
            using errcode = 'invalid_parameter_value',
            hint = 'store large data elsewhere and pass a reference, or raise max_payload_bytes in the options';
    end if;
    -- jsonb refuses what no worker could read: a NUL, half of a surrogate pair.
    perform v_input::jsonb, v_attributes::jsonb;

    select w.workflow_id, w.queue_id into v_workflow, v_queue
    from pgqrs_workflows as w
    where w.name = p_workflow;
    if v_workflow is null then
        raise exception 'no workflow named %', coalesce(quote_literal(p_workflow), 'null')
            using hint = 'create it with store.create_workflow(...)';
    end if;
    v_visible := coalesce(v_moment, statement_timestamp() + v_delay * interval '1 second');
    -- A run that has the key may be deleted between the look and the insert, and the other way round.
    for v_try in 1..3 loop
        insert into pgqrs_workflow_runs
            (workflow_id, status, input, created_at, updated_at, max_attempts, priority, attributes, idempotency_key)
        values
            (v_workflow, 'PENDING', v_input, statement_timestamp(), statement_timestamp(), v_attempts, v_priority,
             v_attributes, v_key)
        on conflict (idempotency_key) where idempotency_key is not null and deleted_at is null do nothing
        returning run_id into v_run;
        exit when v_run is not null;
        select * into v_found
        from pgqrs_workflow_runs as r
        where r.idempotency_key = v_key and r.deleted_at is null;
        if v_found.run_id is not null then
            if v_found.workflow_id <> v_workflow or v_found.input::jsonb is distinct from v_input::jsonb then
                raise exception 'idempotency key % belongs to run %, which has another input',
                    quote_literal(v_key), v_found.run_id;
            end if;
            return v_found.run_id;
        end if;
    end loop;
    if v_run is null then
        raise exception 'idempotency key % is in use by another transaction; retry yours', quote_literal(v_key);
    end if;
    insert into pgqrs_messages (queue_id, payload, run_id, priority, visible_after, enqueued_at, max_attempts)
    values (v_queue, json_build_object('run_id', v_run), v_run, v_priority, v_visible, statement_timestamp(), v_attempts);
    if coalesce(v_options ->> 'audit', 'normal') <> 'none' then
        insert into pgqrs_workflow_events (run_id, event_type, created_at)
        values (v_run, 'created', statement_timestamp());
    end if;
    insert into pgqrs_run_attributes (name, value, run_id)
    select a.key, a.value, v_run
    from json_each_text(coalesce(v_attributes, '{}')) as a
    where json_typeof(v_attributes -> a.key) not in ('object', 'array')
      and length(a.key) <= 200
      and length(a.value) <= 200
    on conflict do nothing;
    return v_run;
end
$$;
