-- catalogue_agrees
-- Order's view of every product equals inventory's catalogue.
select format('%s: order knows it as %s for %s %s, %s, and inventory as %s for %s %s, %s', sku,
    coalesce(v.name, 'nothing'), v.price, v.currency, v.status, coalesce(p.name, 'nothing'), p.price, p.currency, p.status)
    as violation
from orders.product_view v
full join inventory.product p using (sku)
where (v.name, v.category, v.price, v.currency, v.status)
    is distinct from (p.name, p.category, p.price, p.currency, p.status)
