-- order_agrees_with_saga
-- A CONFIRMED order has a COMPLETED saga, a CANCELLED one a COMPENSATED saga (ended sagas are purged after a day or more).
with in_flight as (
    -- Orders in flight, if the audit names any: their compensations may still be on their way.
    select unnest(string_to_array(current_setting('audit.in_flight', true), ','))::uuid as order_id
)
select format('order %s is %s, but its saga is %s%s', o.order_id, o.status, coalesce(s.status, 'missing'),
    case when s.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED') then ' (unsettled: due from '
        || coalesce(nullif(array_to_string(s.receipts_due, ', '), ''), 'no participant') || ')' else '' end) as violation
from orders.customer_order o
left join saga.saga_instance s on s.saga_id = o.saga_id
where (o.status = 'CONFIRMED' and s.status <> 'COMPLETED')
    or (o.status = 'CANCELLED' and s.status <> 'COMPENSATED'
        and not (s.status = 'COMPENSATING' and o.order_id in (select order_id from in_flight)))
    or (o.status <> 'PENDING' and s.saga_id is null and o.updated_at > now() - interval '1 day')
union all
select format('order %s says its saga is %s, which belongs to %s', o.order_id, o.saga_id, s.business_key)
from orders.customer_order o
join saga.saga_instance s on s.saga_id = o.saga_id
where s.business_key <> o.order_id
