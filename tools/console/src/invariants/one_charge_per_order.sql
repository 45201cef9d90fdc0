-- one_charge_per_order
-- No order was charged twice, and no charge stands for two orders.
select format('order %s has %s payments', order_id, count(*)) as violation
from payment.payment
group by order_id
having count(*) > 1
union all
select format('charge %s stands for %s payments', gateway_reference, count(*))
from payment.payment
where gateway_reference is not null
group by gateway_reference
having count(*) > 1
