-- inbox_unique
-- No consumer has had an event twice, in whichever partition.
with had as (
    select 'order' as service, event_id, consumer from orders.inbox
    union all
    select 'inventory', event_id, consumer from inventory.inbox
    union all
    select 'payment', event_id, consumer from payment.inbox
)
select format('%s: %s had event %s %s times', service, consumer, event_id, count(*)) as violation
from had
group by service, consumer, event_id
having count(*) > 1
