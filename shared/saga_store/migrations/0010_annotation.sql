-- What somebody did to the suite on purpose, and when: scenarios that were played and faults that were armed. Boards show
-- each as a named band. A fault's `ended_at` is its expiry until it is disarmed; a scenario has none while it is played.
create table annotation (
    annotation_id uuid        not null,
    kind          text        not null,
    title         text        not null,
    -- None: it concerns all of them.
    service       text,
    began_at      timestamptz not null default now(),
    ended_at      timestamptz,
    constraint annotation_pk primary key (annotation_id),
    constraint annotation_kind check (kind in ('scenario', 'fault')),
    constraint annotation_title check (length(title) between 1 and 200),
    constraint annotation_period check (ended_at >= began_at)
);

-- Finds what a board's time range shows without reading all that was ever done.
create index annotation_began on annotation (began_at);

-- The same as before, but annotations are forgotten as hits of faults are. Their keys are UUIDv7: oldest first.
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
            for update skip locked
        )
        returning 1
    ), forgotten as (
        delete from fault_hit
        where hit_id in (select hit_id from fault_hit order by hit_id limit batch)
            and hit_at < now() - greatest(retention, interval '1 day')
    ), unmarked as (
        delete from annotation
        where annotation_id in (select annotation_id from annotation order by annotation_id limit batch)
            and began_at < now() - greatest(retention, interval '1 day')
    )
    select count(*) from gone
$$;
