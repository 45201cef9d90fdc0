-- As before, and now with the transactions that have written and hold no snapshot while they idle: they keep their locks, and
-- their ids hold back vacuum, too.
create or replace function activity() returns table (state text, connections bigint, oldest_snapshot_seconds double precision)
    language sql security definer set search_path from current as $$
    select coalesce(state, 'unknown'), count(*),
        coalesce(max(extract(epoch from clock_timestamp() - xact_start))
            filter (where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()), 0)
    from pg_stat_activity
    where datname = current_database()
    group by 1
$$;
