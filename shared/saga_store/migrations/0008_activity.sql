-- What goes on in this database, for order's metrics: how many connections are in which state, and for how many seconds
-- the oldest of their transactions has kept dead rows from being cleaned up. A role sees no details of others'
-- connections; the owner's rights show these numbers and nothing else.
create function activity() returns table (state text, connections bigint, oldest_snapshot_seconds double precision)
    language sql security definer set search_path from current as $$
    select coalesce(state, 'unknown'), count(*),
        coalesce(max(extract(epoch from clock_timestamp() - xact_start))
            filter (where backend_xmin is not null and pid <> pg_backend_pid()), 0)
    from pg_stat_activity
    where datname = current_database()
    group by 1
$$;
revoke all on function activity() from public;

-- It told less of the same.
drop function oldest_transaction_seconds();
