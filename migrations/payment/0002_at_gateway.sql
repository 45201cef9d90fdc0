-- The payment of one order, as far as it waits for the card processor, for order's
-- `GET /api/orders/{id}/explain`: order may not read this schema's tables. `intent` is what payment wants of the
-- processor: its answer to a charge, or, since the order is cancelled, that the money is given back or never taken.
create function at_gateway(of_order uuid) returns table (payment_id uuid, intent text, since timestamptz)
    language sql stable security definer set search_path from current as $$
    select payment_id, case when cancelled_at is null then 'CHARGE' else 'UNDO' end, coalesce(cancelled_at, created_at)
    from payment
    where order_id = of_order and (status = 'PENDING' or (status = 'CAPTURED' and cancelled_at is not null))
$$;

revoke all on function at_gateway(uuid) from public;
