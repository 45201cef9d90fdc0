-- Every time a fault that somebody armed hit something: written before it acts, so that a crash is in here, too.
-- A saga's next journal entry names the faults that hit it since the entry before.
create table fault_hit (
    hit_id   bigint      generated always as identity,
    saga_id  uuid,
    service  text        not null,
    step     text,
    fault_id bigint      not null,
    point    text        not null,
    kind     text        not null,
    hit_at   timestamptz not null default clock_timestamp(),
    constraint fault_hit_pk primary key (hit_id)
);

create index fault_hit_saga on fault_hit (saga_id) where saga_id is not null;

-- W3C baggage of the request that began the saga: whom and what it is about, for faults that are limited to it.
-- Empty unless faults are enabled.
alter table saga_instance add column baggage text;

-- Hits are forgotten as long ended sagas are.
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
        delete from fault_hit where hit_at < now() - greatest(retention, interval '1 day')
    )
    select count(*) from gone
$$;
