-- nothing_held_on_cancelled
-- A CANCELLED order holds no stock and no money.
with in_flight as (
    -- Orders in flight, if the audit names any: their compensations may still be on their way.
    select unnest(string_to_array(current_setting('audit.in_flight', true), ','))::uuid as order_id
)
select format('order %s is CANCELLED, but holds %s x %s', order_id, l.quantity, l.sku) as violation
from orders.customer_order o
join inventory.reservation_line l using (order_id)
where o.status = 'CANCELLED' and l.status = 'RESERVED' and order_id not in (select order_id from in_flight)
union all
select format('order %s is CANCELLED, but %s %s are captured', order_id, p.amount, p.currency)
from orders.customer_order o
join payment.payment p using (order_id)
where o.status = 'CANCELLED' and p.status = 'CAPTURED' and order_id not in (select order_id from in_flight)
