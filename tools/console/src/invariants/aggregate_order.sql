-- aggregate_order
-- The events of one aggregate are in their stream in the order in which they happened.
with published as (
    -- A republished event comes after its successors; consumers recognise it. A void acknowledgement is a position in a stream
    -- that was rolled back since: such positions have no order.
    select service, aggregate_type, aggregate_id, aggregate_sequence, event_type, stream, stream_sequence, stream_epoch,
        position
    from audit.outbox_published
    where republication = 0 and stream_epoch <> 0 and event_id not in (select event_id from audit.void_receipt)
), neighbours as (
    select service, aggregate_type, aggregate_id, aggregate_sequence, event_type, stream_sequence,
        lag(stream_sequence) over aggregate as previous
    from published
    window aggregate as (
        partition by service, aggregate_type, aggregate_id, stream, stream_epoch
        order by aggregate_sequence, position)
)
select format('%s: %s %s: %s (number %s) is at %s, its predecessor at %s', service, aggregate_type, aggregate_id,
    event_type, aggregate_sequence, stream_sequence, previous) as violation
from neighbours
where stream_sequence <= previous
