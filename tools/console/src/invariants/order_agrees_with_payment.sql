-- order_agrees_with_payment
-- A CONFIRMED order is paid, in full; the payment of a CANCELLED one was declined, refunded or voided.
with in_flight as (
    -- Orders in flight, if the audit names any: their compensations may still be on their way.
    select unnest(string_to_array(current_setting('audit.in_flight', true), ','))::uuid as order_id
)
select format('order %s is %s, but its payment is %s', order_id, o.status, coalesce(p.status, 'missing')) as violation
from orders.customer_order o
left join payment.payment p using (order_id)
where coalesce(p.status, 'missing') <> all (case o.status
    when 'CONFIRMED' then array['CAPTURED']
    when 'CANCELLED' then array['DECLINED', 'REFUNDED', 'VOIDED']
    else array['missing', 'PENDING', 'CAPTURED', 'DECLINED'] end)
    and (o.status <> 'CANCELLED' or order_id not in (select order_id from in_flight))
union all
select format('order %s is worth %s %s, but its payment %s %s', order_id, o.total_amount, o.currency, p.amount, p.currency)
from orders.customer_order o
join payment.payment p using (order_id)
where p.status <> 'VOIDED' and (p.amount, p.currency) is distinct from (o.total_amount, o.currency)
union all
select format('order %s has saga %s, but its payment %s', order_id, o.saga_id, p.saga_id)
from orders.customer_order o
join payment.payment p using (order_id)
where p.saga_id <> o.saga_id
