-- What is known in this schema of the events of one saga, for order's `GET /api/orders/{id}/explain`. Order
-- may not read other services' tables, and the services themselves may be down just when somebody asks; so this
-- function reads for it, with its owner's rights: where the saga's events are, and what may hold them up.
-- Never a payload. Every lookup is by primary key, except in tables that are tiny.
--
-- `consumers` are the durable consumers of this service that take part in the saga. Each row is one fact:
--   PENDING, REFUSED, HELD, PARKED      an event that is not published (again): it waits; the broker refuses it;
--                                       an earlier event of its aggregate is refused (its type is the detail); given up
--   PUBLISHED                           an event that is, in the stream of `detail`
--   HANDLED, FAILED                     what a consumer did with an event: done; failed `attempts` times, tried again
--   DEAD_LETTER                         what it gave up; replayed `attempts` times, `reference` is its own id
--   RELAY_PAUSED, RELAY_GONE, RECEIPT   this service's relay: by an operator; no replica leads it; its last receipt
--   CONSUMER_PAUSED                     by an operator
--   BREAKER                             of a step, in the replica of `reference`, if it was not closed a minute ago
create function obstacles(about uuid, consumers text[])
    returns table (kind text, consumer text, event_id uuid, event_type text, state text, detail text,
        attempts integer, since timestamptz, reference text)
    language plpgsql stable security definer set search_path from current as $$
#variable_conflict use_column
declare
    events uuid[] := array(select j.event_id from saga.saga_step j where j.saga_id = about and j.event_id is not null);
begin
    return query
    select
        case
            when o.state = 'PARKED' then 'PARKED'
            when o.attempts > 0 then 'REFUSED'
            when blocker.event_type is not null then 'HELD'
            else 'PENDING'
        end,
        null::text, o.event_id, o.event_type, null::text,
        case when o.attempts > 0 then o.last_error else blocker.event_type end,
        o.attempts,
        case
            when o.attempts > 0 then (select max(a.attempted_at) from outbox_attempt a where a.event_id = o.event_id)
            when o.republication = 0 then o.created_at
        end,
        null::text
    from outbox o
    left join lateral (
        select b.event_type
        from outbox b
        where b.aggregate_id = o.aggregate_id and b.aggregate_type = o.aggregate_type and b.event_id <> o.event_id
            and (b.state = 'PARKED' or b.next_attempt_at is not null)
        order by b.position
        limit 1
    ) blocker on true
    where o.event_id = any(events);

    return query
    select 'PUBLISHED', null::text, p.event_id, p.event_type, null::text, p.stream, 0, p.published_at, null::text
    from outbox_published p
    where p.event_id = any(events) and not exists (select from outbox o where o.event_id = p.event_id);

    return query
    select 'HANDLED', i.consumer, i.event_id, null::text, null::text, null::text, 0, i.processed_at, null::text
    from inbox i
    where i.event_id = any(events) and i.consumer = any(consumers);

    -- What succeeded in the end, or is a dead letter, is not tried again.
    return query
    select 'FAILED', d.consumer, d.event_id, null::text, null::text, d.last_error, d.attempts, d.updated_at, null::text
    from delivery_attempt d
    where d.event_id = any(events) and d.consumer = any(consumers)
        and not exists (select from inbox i where i.event_id = d.event_id and i.consumer = d.consumer)
        and not exists (select from dead_letter l where l.event_id = d.event_id and l.consumer = d.consumer);

    return query
    select 'DEAD_LETTER', l.consumer, l.event_id, l.event_type, l.status,
        case when l.status = 'DISCARDED' then l.notes else concat_ws(': ', l.reason, l.error_chain) end,
        l.replay_count, l.updated_at, l.dead_letter_id::text
    from dead_letter l
    where l.saga_id = about;

    return query
    select fact.kind, null::text, null::uuid, null::text, null::text, null::text, 0, fact.since, null::text
    from relay_lease r
    cross join lateral (values
        ('RELAY_PAUSED', r.paused, null::timestamptz),
        -- A lease that was given back expired in the infinite past.
        ('RELAY_GONE', r.expires_at < now(), nullif(r.expires_at, '-infinity')),
        ('RECEIPT', r.last_receipt_at is not null, r.last_receipt_at)
    ) as fact (kind, holds, since)
    where fact.holds;

    return query
    select 'CONSUMER_PAUSED', c.consumer, null::uuid, null::text, null::text, null::text, 0, c.paused_at, null::text
    from paused_consumer c
    where c.consumer = any(consumers);

    return query
    select 'BREAKER', b.step, null::uuid, null::text, b.to_state, b.why, 0, b.changed_at, b.replica
    from (
        select distinct on (replica, step) replica, step, to_state, why, changed_at
        from breaker_change
        where changed_at > now() - interval '1 minute'
        order by replica, step, changed_at desc
    ) b
    where b.to_state <> 'closed';
end $$;

revoke all on function obstacles(uuid, text[]) from public;

-- Dead letters are rare, and asked for by their saga.
create index dead_letter_saga on dead_letter (saga_id) where saga_id is not null;
