-- Services may not create or drop tables. These functions are the only DDL they can reach.

-- The smallest UUIDv7 of a moment: 48 bits of milliseconds, then zeros.
create function uuid_v7_floor(at timestamptz) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Creates the partitions of today and of the days ahead, moving rows that the default partition
-- already holds for them. Returns how many it created.
create function ensure_partitions(days_ahead integer) returns integer
    language plpgsql security definer set search_path from current as $$
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
            execute format('create table %I (like %I including defaults including constraints including indexes)', child, parent);
            execute format('lock table %I in access exclusive mode', parent || '_default');
            execute format('with moved as (delete from %I where event_id >= %L and event_id < %L returning *) insert into %I select * from moved',
                parent || '_default', lower_id, upper_id, child);
            execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, child, lower_id, upper_id);
            created := created + 1;
        end loop;
    end loop;
    return created;
end $$;

-- Drops the whole days that are older than their retention, and deletes what is as old from the default
-- partitions, which hold next to nothing. Returns how many days it dropped.
create function drop_partitions(inbox_retention interval, published_retention interval) returns integer
    language plpgsql security definer set search_path from current as $$
declare
    child record;
    retention interval;
    dropped integer := 0;
begin
    for child in
        select c.oid::regclass as name, p.relname as parent, to_date(right(c.relname, 8), 'YYYYMMDD') as day
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        join pg_class p on p.oid = i.inhparent
        where p.oid in (to_regclass('inbox'), to_regclass('outbox_published')) and c.relname ~ '_\d{8}$'
    loop
        retention := greatest(interval '1 day', case child.parent when 'inbox' then inbox_retention else published_retention end);
        if (child.day + 1)::timestamp at time zone 'utc' < now() - retention then
            execute format('drop table %s', child.name);
            dropped := dropped + 1;
        end if;
    end loop;
    delete from inbox_default where event_id < uuid_v7_floor(now() - greatest(interval '1 day', inbox_retention));
    delete from outbox_published_default
        where event_id < uuid_v7_floor(now() - greatest(interval '1 day', published_retention));
    return dropped;
end $$;

revoke all on function ensure_partitions(integer), drop_partitions(interval, interval) from public;

select ensure_partitions(7);
