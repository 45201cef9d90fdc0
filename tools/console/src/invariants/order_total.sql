-- order_total
-- Every order has lines, and its total is their sum.
select format('order %s: total %s, but %s lines worth %s', o.order_id, o.total_amount, lines.n, lines.amount) as violation
from orders.customer_order o
cross join lateral (
    select count(*) as n, coalesce(sum(quantity::numeric * unit_price), 0) as amount
    from orders.order_line
    where order_id = o.order_id
) lines
where lines.n = 0 or lines.amount <> o.total_amount
