-- An event that is published after its own day was set aside (parked, or held up by an outage) lies in the default partition. It
-- follows its day into the archive.

-- Days that were set aside before published events had ordinals.
do $$
declare
    archive regclass;
begin
    for archive in
        select c.oid
        from pg_class c
        where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = to_regclass('outbox_published'))
            and c.relname ~ '^_event_archive_\d{8}$'
    loop
        continue when exists (select from pg_attribute where attrelid = archive and attname = 'ordinal');
        execute format('alter table %s add column ordinal bigint', archive);
        execute format('create index on %s using brin (ordinal) with (pages_per_range = 32, autosummarize = on)', archive);
    end loop;
end $$;

-- Moves such events into the archive of their day when they were published longer than `published_retention` ago, as
-- `archive_events` sets a day aside, 5,000 each time. A column that `outbox_published` gets later, its archives must get,
-- too, in the same place. Those of days older than `event_retention` are left for `drop_partitions`. Returns how many
-- it has moved.
create function archive_late_events(published_retention interval, event_retention interval) returns integer
    language plpgsql security definer set search_path from current
    -- As in `archive_events`.
    set enable_bitmapscan = on set enable_seqscan = off set lock_timeout = '50ms' as $$
declare
    kept_from constant timestamptz := now() - greatest(interval '1 day', published_retention);
    place constant regnamespace := (select relnamespace from pg_class where oid = to_regclass('outbox_published'));
    late record;
    archive text;
    moved bigint;
    total integer := 0;
begin
    for late in
        select p.day, array_agg(p.event_id) as ids
        from (
            -- An id begins with its time, in milliseconds.
            select event_id, to_char(to_timestamp(('x' || left(replace(event_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
                at time zone 'utc', 'YYYYMMDD') as day
            from outbox_published_default
            where event_id >= uuid_v7_floor(now() - event_retention) and event_id < uuid_v7_floor(kept_from)
                and published_at < kept_from
            limit 5000
        ) p
        group by p.day
    loop
        archive := format('%s.%I', place, '_event_archive_' || late.day);
        begin
            execute format('create table if not exists %s
                (like outbox_published including defaults including constraints including indexes)', archive);
            execute format('with moved as (delete from outbox_published_default where event_id = any ($1) returning *)
                insert into %s select * from moved on conflict do nothing', archive) using late.ids;
            get diagnostics moved = row_count;
            total := total + moved;
        exception when lock_not_available then
            exit;
        end;
    end loop;
    return total;
end $$;

revoke all on function archive_late_events(interval, interval) from public;
