-- order_terminal
-- An order is CONFIRMED or CANCELLED; it is PENDING only while its saga runs.
select format('order %s is %s, but its saga is %s', o.order_id, o.status, coalesce(s.status, 'missing')) as violation
from orders.customer_order o
left join saga.saga_instance s on s.saga_id = o.saga_id
where o.status not in ('CONFIRMED', 'CANCELLED')
    and (o.status <> 'PENDING' or coalesce(s.status, 'missing') not in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT'))
