-- The history of events. A day of published events that is not needed any more for publishing again is set aside whole, as the
-- table `_event_archive_YYYYMMDD`, without copying a row; and dropped when it is older than the archive's retention.

-- Events of no saga are found by their aggregate, also in the archive.
create index outbox_published_aggregate on outbox_published (aggregate_id, aggregate_sequence) where saga_id is null;

-- As before, but days of published events go to the archive. Returns how many days of both tables are gone.
create function drop_partitions(inbox_retention interval, published_retention interval, archive_retention interval) returns integer
    language plpgsql security definer set search_path from current
    -- The one index on times is a BRIN, which nothing but a bitmap scan can use.
    set enable_bitmapscan = on set enable_seqscan = off set lock_timeout = '50ms' as $$
declare
    parent record;
    child record;
    younger boolean;
    dropped integer := 0;
begin
    -- As many as a round can delete; there are few, unless somebody's clock is days away.
    delete from inbox_default
        where ctid = any (array(
            select ctid
            from inbox_default
            where processed_at < now() - greatest(interval '1 day', inbox_retention)
            limit 50000
        ));
    delete from outbox_published_default
        where ctid = any (array(
            select ctid
            from outbox_published_default
            -- Whoever compares receipts with a stream knows by an id whether its receipt may be gone.
            where event_id < uuid_v7_floor(now() - greatest(interval '1 day', published_retention))
                and published_at < now() - greatest(interval '1 day', published_retention)
            limit 50000
        ));
    for parent in
        select 'inbox' as name, 'processed_at' as since, now() - greatest(interval '1 day', inbox_retention) as kept_from
        union all
        select 'outbox_published', 'published_at', now() - greatest(interval '1 day', published_retention)
    loop
        for child in
            select i.inhrelid::regclass as name, right(c.relname, 8) as day
            from pg_inherits i
            join pg_class c on c.oid = i.inhrelid
            where i.inhparent = to_regclass(parent.name) and c.relname ~ '_\d{8}$'
                and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'utc' < parent.kept_from
            order by c.relname
        loop
            begin
                execute format('select exists (select from %s where %I >= $1)', child.name, parent.since)
                    into younger using parent.kept_from;
                exit when younger;
                if parent.name = 'inbox' then
                    execute format('drop table %s', child.name);
                else
                    execute format('alter table outbox_published detach partition %s', child.name);
                    execute format('alter table %s rename to %I', child.name, '_event_archive_' || child.day);
                end if;
                dropped := dropped + 1;
            exception when lock_not_available then
                exit;
            end;
        end loop;
    end loop;
    for child in
        select c.oid::regclass as name
        from pg_class c
        where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('outbox'))
            and c.relname ~ '^_event_archive_\d{8}$'
            and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'utc' < now() - archive_retention
    loop
        begin
            execute format('drop table %s', child.name);
        exception when lock_not_available then
            exit;
        end;
    end loop;
    return dropped;
end $$;

-- What a build without the archive calls.
create or replace function drop_partitions(inbox_retention interval, published_retention interval) returns integer
    language sql security definer set search_path from current as $$
    select drop_partitions(inbox_retention, published_retention, interval '30 days')
$$;

-- These events, in any order, as far as they are kept: for the history of an order, whose service may not read other services'
-- tables. Without tokens of cards and addresses. One that is being published again is in the outbox, and not returned twice.
create function events(ids uuid[])
    returns table (event_id uuid, event_type text, aggregate_sequence bigint, payload jsonb, published_at timestamptz)
    language plpgsql stable security definer set search_path from current as $$
declare
    archive regclass;
begin
    return query
    select p.event_id, p.event_type, p.aggregate_sequence, p.payload::jsonb - array['payment_method', 'shipping_address'], p.published_at
    from outbox_published p
    where p.event_id = any (ids);

    return query
    select o.event_id, o.event_type, o.aggregate_sequence, o.payload::jsonb - array['payment_method', 'shipping_address'], null::timestamptz
    from outbox o
    where o.event_id = any (ids) and not exists (select from outbox_published p where p.event_id = o.event_id);

    for archive in
        -- An id begins with its time, in milliseconds.
        select distinct to_regclass('_event_archive_' || to_char(to_timestamp(
            ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) at time zone 'utc', 'YYYYMMDD'))
        from unnest(ids) as id
    loop
        continue when archive is null;
        return query execute format(
            'select event_id, event_type, aggregate_sequence, payload::jsonb - array[''payment_method'', ''shipping_address''], published_at
            from %s where event_id = any ($1)', archive) using ids;
    end loop;
end $$;

-- The events of one aggregate that belong to no saga, latest first, from one on.
create function aggregate_events(kind text, id text, before bigint, most bigint)
    returns table (event_id uuid, event_type text, aggregate_sequence bigint, payload jsonb, published_at timestamptz)
    language plpgsql stable security definer set search_path from current as $$
declare
    source text;
    parts text := '';
begin
    for source in
        select c.oid::regclass::text
        from pg_class c
        where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('outbox'))
            and (c.relname ~ '^_event_archive_\d{8}$' or c.relname = 'outbox_published')
    loop
        parts := parts || format(
            ' union all (select event_id, event_type, aggregate_sequence, payload::jsonb, published_at
            from %s
            where saga_id is null and aggregate_type = $1 and aggregate_id = $2 and aggregate_sequence < $3
            order by aggregate_sequence desc limit $4)', source);
    end loop;
    return query execute format(
        'select * from (select event_id, event_type, aggregate_sequence, payload::jsonb, null::timestamptz
            from outbox o
            where aggregate_type = $1 and aggregate_id = $2 and aggregate_sequence < $3
                and not exists (select from outbox_published p where p.event_id = o.event_id)%s) as event
        order by aggregate_sequence desc limit $4', parts) using kind, id, before, most;
end $$;

revoke all on function drop_partitions(interval, interval, interval), events(uuid[]),
    aggregate_events(text, text, bigint, bigint) from public;
