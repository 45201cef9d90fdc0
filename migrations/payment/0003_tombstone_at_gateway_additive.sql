-- A tombstone waits for the card processor, too: it may hold a charge that this database has forgotten. Only the answer
-- lets the first event of such a payment be told.
create or replace function at_gateway(of_order uuid) returns table (payment_id uuid, intent text, since timestamptz)
    language sql stable security definer set search_path from current as $$
    select payment_id, case when cancelled_at is null then 'CHARGE' else 'UNDO' end, coalesce(cancelled_at, created_at)
    from payment
    where order_id = of_order
        and (status = 'PENDING'
            or (status = 'CAPTURED' and cancelled_at is not null)
            or (status = 'VOIDED' and version = 0))
$$;
