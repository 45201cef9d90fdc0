-- What the definition decides is written down, so that neither the database nor another build has to know its names and
-- numbers: that a request has turned a completed saga back, and that a saga has taken a step behind its pivot.
alter table saga_instance
    add column reopened boolean not null default false,
    add column past_pivot boolean not null default false;

-- The same as before, but for how a completed saga may turn back: by request, until it has taken a step behind its pivot.
create or replace function refuse_illegal_transition() returns trigger language plpgsql as $$
begin
    if (old.status, new.status) in (
        ('STARTED', 'IN_PROGRESS'), ('STARTED', 'TIMED_OUT'), ('STARTED', 'COMPENSATING'),
        ('IN_PROGRESS', 'COMPLETED'), ('IN_PROGRESS', 'TIMED_OUT'), ('IN_PROGRESS', 'COMPENSATING'),
        ('TIMED_OUT', 'COMPENSATING'),
        ('COMPENSATING', 'COMPENSATED'), ('COMPENSATING', 'FAILED'),
        ('FAILED', 'COMPENSATING'), ('FAILED', 'COMPENSATED')
    ) then
        return new;
    end if;
    -- A build from before this migration names its step instead.
    if old.status = 'COMPLETED' and new.status = 'COMPENSATING' and not old.past_pivot
        and (new.reopened or new.failed_at_step = 'cancel_order_on_request') then
        return new;
    end if;
    raise exception 'illegal saga transition % -> % of saga %', old.status, new.status, old.saga_id
        using errcode = 'check_violation', constraint = 'saga_instance_transition';
end $$;
