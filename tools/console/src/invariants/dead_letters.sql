-- dead_letters
-- No dead letter waits for a decision.
with waiting as (
    select 'order' as service, step, event_type, attempts, reason, created_at from orders.dead_letter
    where status = 'PENDING'
    union all
    select 'inventory', step, event_type, attempts, reason, created_at from inventory.dead_letter
    where status = 'PENDING'
    union all
    select 'payment', step, event_type, attempts, reason, created_at from payment.dead_letter
    where status = 'PENDING'
)
select format('%s: %s could not apply %s after %s attempts: %s', service, step, event_type, attempts, reason) as violation
from waiting
order by created_at
