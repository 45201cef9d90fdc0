-- no_orphans
-- Every reservation, payment and saga belongs to an order, except those of unknown orders that hold nothing.
select format('reservation %s (%s) belongs to no order', r.order_id, r.status) as violation
from inventory.reservation r
left join orders.customer_order o using (order_id)
where o.order_id is null and r.status <> 'TOMBSTONE'
union all
select format('payment %s (%s) belongs to no order: %s', p.payment_id, p.status, p.order_id)
from payment.payment p
left join orders.customer_order o using (order_id)
where o.order_id is null and p.status not in ('VOIDED', 'REFUNDED')
union all
select format('saga %s (%s) belongs to no order: %s', s.saga_id, s.status, s.business_key)
from saga.saga_instance s
left join orders.customer_order o on o.order_id = s.business_key and o.saga_id = s.saga_id
where s.saga_type in ('OrderFulfillment', 'OrderFulfillmentOrchestrated') and o.order_id is null
