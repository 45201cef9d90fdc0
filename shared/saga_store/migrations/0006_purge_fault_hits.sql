-- The same as before, but hits of faults are forgotten in batches, too, oldest first by their key.
create or replace function purge_terminal(retention interval, batch integer) returns bigint
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
    ), forgotten as (
        delete from fault_hit
        where hit_id in (select hit_id from fault_hit order by hit_id limit batch)
            and hit_at < now() - greatest(retention, interval '1 day')
    )
    select count(*) from gone
$$;
