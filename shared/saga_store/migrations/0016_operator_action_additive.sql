-- What operators did over the administration routes of any service: who, what, why, and how it was answered. Written before the
-- action; without a status it was never answered (its replica died, or its client went).
create table operator_action (
    action_id uuid        not null,
    service   text        not null,
    actor     text        not null,
    -- Method and path, which names the entry: `POST /api/admin/dlq/.../replay`.
    action    text        not null,
    reason    text,
    -- The request's body as it was sent, unless it is long.
    request   text,
    acted_at  timestamptz not null default now(),
    -- The status of the HTTP answer.
    status    smallint,
    constraint operator_action_pk primary key (action_id)
);

-- The same as before, but operators' actions are forgotten as annotations are. Their keys are UUIDv7: oldest first.
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
                and receipts_due = '{}'
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
    ), unrecorded as (
        delete from operator_action
        where action_id in (select action_id from operator_action order by action_id limit batch)
            and acted_at < now() - greatest(retention, interval '1 day')
    )
    select count(*) from gone
$$;
