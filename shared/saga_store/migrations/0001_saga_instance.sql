-- One row per running or finished saga, shared by all services. A step, its outbox rows and this
-- row commit together; the row's lock is what makes a timeout and a late success exclude each other.
create table saga_instance (
    saga_id                uuid        not null,
    saga_type              text        not null,
    business_key           uuid        not null,
    correlation_id         text        not null,
    trace_id               text        not null,
    status                 text        not null,
    current_step           smallint    not null,
    total_steps            smallint    not null,
    -- The services whose confirmation of their undo is still missing (a set: repeats change nothing).
    receipts_due           text[]      not null default '{}',
    started_at             timestamptz not null default now(),
    deadline               timestamptz not null,
    compensation_deadline  timestamptz,
    compensation_attempts  smallint    not null default 0,
    completed_at           timestamptz,
    failure_reason         text,
    failed_at_step         text,
    initiating_service     text        not null,
    initiating_event_id    uuid        not null,
    -- The last event of the saga and who published it: what is repeated when the saga stalls.
    last_event_id          uuid        not null,
    last_service           text        not null,
    last_progress_at       timestamptz not null default now(),
    stall_nudged           boolean     not null default false,
    -- Grows by one with every journal entry, and is that entry's position.
    version                integer     not null,
    constraint saga_instance_pk primary key (saga_id),
    constraint saga_instance_business_key unique (business_key, saga_type),
    constraint saga_instance_status check (status in
        ('STARTED', 'IN_PROGRESS', 'COMPLETED', 'TIMED_OUT', 'COMPENSATING', 'COMPENSATED', 'FAILED')),
    constraint saga_instance_receipts check (status <> 'COMPENSATED' or receipts_due = '{}'),
    constraint saga_instance_ended check ((completed_at is not null) = (status in ('COMPLETED', 'COMPENSATED', 'FAILED')))
) with (fillfactor = 70);

-- Only sagas that still run are in these indexes, so both stay small for ever.
create index saga_instance_due on saga_instance (deadline) where status in ('STARTED', 'IN_PROGRESS');
create index saga_instance_compensating on saga_instance (compensation_deadline) where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED');

-- The legal life of a saga. Whatever the code does, the database refuses every other transition.
create function refuse_illegal_transition() returns trigger language plpgsql as $$
begin
    if (old.status, new.status) in (
        ('STARTED', 'IN_PROGRESS'), ('STARTED', 'TIMED_OUT'), ('STARTED', 'COMPENSATING'),
        ('IN_PROGRESS', 'COMPLETED'), ('IN_PROGRESS', 'TIMED_OUT'), ('IN_PROGRESS', 'COMPENSATING'),
        ('TIMED_OUT', 'COMPENSATING'),
        ('COMPENSATING', 'COMPENSATED'), ('COMPENSATING', 'FAILED'),
        ('FAILED', 'COMPENSATING')
    ) then
        return new;
    end if;
    if old.status = 'COMPLETED' and new.status = 'COMPENSATING' and new.failed_at_step = 'cancel_order_on_request' then
        return new;
    end if;
    raise exception 'illegal saga transition % -> % of saga %', old.status, new.status, old.saga_id
        using errcode = 'check_violation', constraint = 'saga_instance_transition';
end $$;

create trigger saga_instance_transition before update of status on saga_instance
    for each row when (old.status is distinct from new.status)
    execute function refuse_illegal_transition();

create function refuse_illegal_start() returns trigger language plpgsql as $$
begin
    raise exception 'a saga begins as STARTED, not as %', new.status
        using errcode = 'check_violation', constraint = 'saga_instance_transition';
end $$;

create trigger saga_instance_start before insert on saga_instance
    for each row when (new.status <> 'STARTED')
    execute function refuse_illegal_start();
