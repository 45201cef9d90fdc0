-- money_conserved
-- In every currency, what was captured and not refunded is the value of the confirmed orders.
with in_flight as (
    -- Orders in flight, if the audit names any: neither side counts them.
    select unnest(string_to_array(current_setting('audit.in_flight', true), ','))::uuid as order_id
), captured as (
    select currency, sum(amount)::bigint as amount
    from payment.payment
    where status = 'CAPTURED' and order_id not in (select order_id from in_flight)
    group by currency
), confirmed as (
    select currency, sum(total_amount)::bigint as amount
    from orders.customer_order
    where status = 'CONFIRMED' and order_id not in (select order_id from in_flight)
    group by currency
)
select format('%s: %s captured and kept, but %s confirmed', currency,
    coalesce(captured.amount, 0), coalesce(confirmed.amount, 0)) as violation
from captured
full join confirmed using (currency)
where coalesce(captured.amount, 0) <> coalesce(confirmed.amount, 0)
