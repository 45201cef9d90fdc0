-- How long events and receipts are kept follows this database's clock. The day of an id is the day of its service's clock,
-- and says only in which partition it lies: a partition goes when its day is over and all its rows are old, too.

-- Rows are old in the order in which they came, so these stay tiny.
create index inbox_processed on inbox using brin (processed_at) with (autosummarize = on);
create index outbox_published_published on outbox_published using brin (published_at) with (autosummarize = on);

-- Deletes what is older than its retention from the default partitions; then drops whole days that are as old, oldest
-- first, up to one of which something is younger. Whoever holds a lock that this needs is not waited for: everybody
-- else would wait behind that, and the next round comes soon. Returns how many days it dropped.
create or replace function drop_partitions(inbox_retention interval, published_retention interval) returns integer
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
            select i.inhrelid::regclass as name
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
                execute format('drop table %s', child.name);
                dropped := dropped + 1;
            exception when lock_not_available then
                exit;
            end;
        end loop;
    end loop;
    return dropped;
end $$;

-- As before, but what is in use is left for the next round, here as well.
create or replace function ensure_partitions(days_ahead integer) returns integer
    language plpgsql security definer set search_path from current set lock_timeout = '50ms' as $$
declare
    parent text;
    day date;
    child text;
    lower_id uuid;
    upper_id uuid;
    created integer := 0;
begin
    foreach parent in array array['inbox', 'outbox_published'] loop
        for offset_days in 0 .. least(days_ahead, 30) loop
            day := (now() at time zone 'utc')::date + offset_days;
            child := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
            continue when to_regclass(child) is not null;
            lower_id := uuid_v7_floor(day::timestamp at time zone 'utc');
            upper_id := uuid_v7_floor((day + 1)::timestamp at time zone 'utc');
            begin
                execute format('create table %I (like %I including defaults including constraints including indexes)', child, parent);
                execute format('lock table %I in access exclusive mode', parent || '_default');
                execute format('with moved as (delete from %I where event_id >= %L and event_id < %L returning *) insert into %I select * from moved',
                    parent || '_default', lower_id, upper_id, child);
                execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, child, lower_id, upper_id);
                created := created + 1;
            exception when lock_not_available then
                exit;
            end;
        end loop;
    end loop;
    return created;
end $$;
