-- money_conserved
-- In every currency, what was captured and not refunded is the value of the confirmed orders.
with captured as (
    select currency, sum(amount)::bigint as amount
    from payment.payment
    where status = 'CAPTURED'
    group by currency
), confirmed as (
    select currency, sum(total_amount)::bigint as amount
    from orders.customer_order
    where status = 'CONFIRMED'
    group by currency
)
select format('%s: %s captured and kept, but %s confirmed', currency,
    coalesce(captured.amount, 0), coalesce(confirmed.amount, 0)) as violation
from captured
full join confirmed using (currency)
where coalesce(captured.amount, 0) <> coalesce(confirmed.amount, 0)
