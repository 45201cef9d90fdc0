-- aggregate_order
-- The events of one aggregate stand in their stream in the order in which they happened.
with published as (
    select 'order' as service, * from orders.outbox_published
    union all
    select 'inventory', * from inventory.outbox_published
    union all
    select 'payment', * from payment.outbox_published
), neighbours as (
    select service, aggregate_type, aggregate_id, aggregate_sequence, event_type, stream_sequence,
        lag(stream_sequence) over aggregate as previous
    from published
    -- What a reconciler has put back stands behind its successors; consumers know it already. A void receipt says where
    -- the event once was in a stream that came back older, and again older: those places have no order.
    where republication = 0 and stream_epoch <> 0 and event_id not in (
        select event_id from orders.void_receipt
        union all
        select event_id from inventory.void_receipt
        union all
        select event_id from payment.void_receipt
    )
    window aggregate as (
        partition by service, aggregate_type, aggregate_id, stream, stream_epoch
        order by aggregate_sequence, position)
)
select format('%s: %s %s: %s (number %s) is at %s, its predecessor at %s', service, aggregate_type, aggregate_id,
    event_type, aggregate_sequence, stream_sequence, previous) as violation
from neighbours
where stream_sequence <= previous
