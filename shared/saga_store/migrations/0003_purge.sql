-- Services may not delete sagas; they may ask for old finished ones to be purged.
-- Ids are UUIDv7, so old sagas are found at the beginning of the primary key.
create function purge_terminal(retention interval, batch integer) returns bigint
    language sql security definer set search_path from current as $$
    with gone as (
        delete from saga_instance
        where saga_id in (
            select saga_id
            from saga_instance
            where saga_id < (lpad(to_hex((extract(epoch from now() - retention) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
                and status in ('COMPLETED', 'COMPENSATED')
                and completed_at < now() - greatest(retention, interval '1 day')
            limit batch
        )
        returning 1
    )
    select count(*) from gone
$$;
revoke all on function purge_terminal(interval, integer) from public;
