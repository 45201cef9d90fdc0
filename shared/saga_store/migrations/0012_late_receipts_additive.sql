-- The same as before, and a saga that was given up ends when the receipts that were due come after all: nothing is held any
-- more, so nobody has to resume it.
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
    if old.status = 'COMPLETED' and new.status = 'COMPENSATING' and new.failed_at_step = 'cancel_order_on_request' then
        return new;
    end if;
    raise exception 'illegal saga transition % -> % of saga %', old.status, new.status, old.saga_id
        using errcode = 'check_violation', constraint = 'saga_instance_transition';
end $$;
