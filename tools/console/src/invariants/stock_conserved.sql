-- stock_conserved
-- For every SKU, available and reserved units add up to the supplied ones, and the reserved units are those of the reservations.
with held as (
    select sku, sum(quantity)::bigint as quantity
    from inventory.reservation_line
    where status = 'RESERVED'
    group by sku
)
select format('%s: %s available + %s reserved, but %s supplied', sku, available, reserved, supplied) as violation
from inventory.product
where available + reserved <> supplied
union all
select format('%s: %s reserved, but the reservations hold %s', sku, coalesce(reserved, 0), coalesce(held.quantity, 0))
from inventory.product
full join held using (sku)
where coalesce(reserved, 0) <> coalesce(held.quantity, 0)
