-- The same as before, but a completed saga that still owes a step behind its pivot is kept: what it owes is known by it only.
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
    )
    select count(*) from gone
$$;

-- Releases completed sagas from what they owe this service, and journals why: for an operator whose suite has gone back for
-- good to a build without the step. Returns how many. The owner's right only.
create function forgive_owed(service text, reason text) returns bigint
    language sql set search_path from current as $$
    with forgiven as (
        update saga_instance
        set receipts_due = array_remove(receipts_due, forgive_owed.service), version = version + 1
        where status = 'COMPLETED' and receipts_due <> '{}' and forgive_owed.service = any(receipts_due)
        returning saga_id, version, trace_id
    ), journalled as (
        insert into saga_step (saga_id, position, step_number, step, service, direction, event_type, status, reason,
            status_before, status_after, trace_id)
        select saga_id, version, 0, 'forgive_owed', forgive_owed.service, 'FORWARD', 'none', 'SKIPPED', forgive_owed.reason,
            'COMPLETED', 'COMPLETED', trace_id
        from forgiven
        returning 1
    )
    select count(*) from journalled
$$;
revoke all on function forgive_owed(text, text) from public;
