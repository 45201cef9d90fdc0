-- order_agrees_with_payment
-- A CONFIRMED order is paid, in full; the payment of a CANCELLED one was declined, refunded or
-- voided.
with compensating as (
    -- Where a saga at work is no violation, its compensations may still be on their way.
    select business_key as order_id
    from saga.saga_instance
    where status = 'COMPENSATING' and current_setting('audit.in_flight', true) = 'allowed'
)
select format('order %s is %s, but its payment is %s', order_id, o.status, coalesce(p.status, 'missing')) as violation
from orders.customer_order o
left join payment.payment p using (order_id)
where coalesce(p.status, 'missing') <> all (case o.status
    when 'CONFIRMED' then array['CAPTURED']
    when 'CANCELLED' then array['DECLINED', 'REFUNDED', 'VOIDED']
    else array['missing', 'PENDING', 'CAPTURED', 'DECLINED'] end)
    and (o.status <> 'CANCELLED' or order_id not in (select order_id from compensating))
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
