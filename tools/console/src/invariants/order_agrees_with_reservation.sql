-- order_agrees_with_reservation
-- A CONFIRMED order has all its lines reserved; the reservation of a CANCELLED one was refused, released or never made.
with in_flight as (
    -- Orders in flight, if the audit names any: their compensations may still be on their way.
    select unnest(string_to_array(current_setting('audit.in_flight', true), ','))::uuid as order_id
), ordered as (
    select order_id, sku, sum(quantity)::bigint as quantity
    from orders.order_line
    join inventory.reservation using (order_id)
    where reservation.status in ('RESERVED', 'RELEASED')
    group by order_id, sku
)
select format('order %s is %s, but its reservation is %s', order_id, o.status, coalesce(r.status, 'missing')) as violation
from orders.customer_order o
left join inventory.reservation r using (order_id)
where coalesce(r.status, 'missing') <> all (case o.status
    when 'CONFIRMED' then array['RESERVED']
    when 'CANCELLED' then array['REFUSED', 'RELEASED', 'TOMBSTONE']
    else array['missing', 'RESERVED', 'REFUSED'] end)
    and (o.status <> 'CANCELLED' or order_id not in (select order_id from in_flight))
union all
select format('order %s has saga %s, but its reservation %s', order_id, o.saga_id, r.saga_id)
from orders.customer_order o
join inventory.reservation r using (order_id)
where r.saga_id <> o.saga_id
union all
select format('order %s: %s x %s ordered, but the reservation is for %s', order_id,
    coalesce(ordered.quantity, 0), sku, coalesce(l.quantity, 0))
from ordered
full join inventory.reservation_line l using (order_id, sku)
where ordered.quantity is distinct from l.quantity
union all
select format('order %s: the reservation is %s, but its line %s is %s', order_id, r.status, l.sku, l.status)
from inventory.reservation r
join inventory.reservation_line l using (order_id)
where r.status <> l.status
