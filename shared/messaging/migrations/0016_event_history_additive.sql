-- The history of events. A day of published events that is not needed any more for publishing again is set aside whole, as the
-- table `_event_archive_YYYYMMDD`, without copying a row; and dropped when it is older than the archive's retention.

-- Events of no saga are found by their aggregate, also in the archive.
create index outbox_published_aggregate on outbox_published (aggregate_id, aggregate_sequence) where saga_id is null;

-- Sets the days aside whose events are all older than `published_retention`, before `drop_partitions` would drop them, oldest
-- first; and drops those that are older than `event_retention`. Whoever holds a lock that this needs is not waited for, as there.
-- Returns how many days it has set aside.
create function archive_events(published_retention interval, event_retention interval) returns integer
    language plpgsql security definer set search_path from current
    -- The one index on times is a BRIN, which nothing but a bitmap scan can use.
    set enable_bitmapscan = on set enable_seqscan = off set lock_timeout = '50ms' as $$
declare
    kept_from constant timestamptz := now() - greatest(interval '1 day', published_retention);
    of record;
    younger boolean;
    archived integer := 0;
begin
    for of in
        select c.oid::regclass as name, c.relispartition, c.relname, to_date(right(c.relname, 8), 'YYYYMMDD') + 1 as ended
        from pg_class c
        where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('outbox_published'))
            and c.relname ~ '^(outbox_published|_event_archive)_\d{8}$'
        order by c.relname
    loop
        begin
            if not of.relispartition then
                continue when of.ended::timestamp at time zone 'utc' >= now() - event_retention;
                execute format('drop table %s', of.name);
            elsif of.ended::timestamp at time zone 'utc' < kept_from then
                execute format('select exists (select from %s where published_at >= $1)', of.name) into younger using kept_from;
                exit when younger;
                execute format('alter table outbox_published detach partition %s', of.name);
                execute format('alter table %s rename to %I', of.name, '_event_archive_' || right(of.relname, 8));
                archived := archived + 1;
            end if;
        exception when lock_not_available or duplicate_table then
            exit;
        end;
    end loop;
    return archived;
end $$;

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
        -- An id begins with its time, in milliseconds. Not by name alone, which would find a temporary table first.
        select c.oid
        from pg_class c
        where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'outbox_published'::regclass)
            and c.relname in (
                select '_event_archive_' || to_char(to_timestamp(
                    ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) at time zone 'utc', 'YYYYMMDD')
                from unnest(ids) as id
            )
    loop
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

revoke all on function archive_events(interval, interval), events(uuid[]), aggregate_events(text, text, bigint, bigint)
    from public;
