-- Services may not delete sagas; they may ask for old finished ones to be purged.
-- A completed saga stays as long as its order can still be cancelled by the retention's owner.
create function purge_terminal(retention interval, batch integer) returns bigint
    language sql security definer set search_path from current as $$
    with gone as (
        delete from saga_instance
        where saga_id in (
            select saga_id
            from saga_instance
            where status in ('COMPLETED', 'COMPENSATED')
                and completed_at < now() - greatest(retention, interval '1 day')
            limit batch
        )
        returning 1
    )
    select count(*) from gone
$$;
revoke all on function purge_terminal(interval, integer) from public;
