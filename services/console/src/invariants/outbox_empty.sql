-- outbox_empty
-- No event is parked, and none waits for its publication longer than the time given to settle.
with waiting as (
    select 'order' as service, * from orders.outbox
    union all
    select 'inventory', * from inventory.outbox
    union all
    select 'payment', * from payment.outbox
)
select format('%s: %s %s is %s since %s%s', service, event_type, event_id, state, created_at,
    coalesce(' (' || attempts || ' attempts: ' || last_error || ')', '')) as violation
from waiting
where state = 'PARKED'
    or created_at < now() - coalesce(nullif(current_setting('audit.settle', true), ''), '0 s')::interval
