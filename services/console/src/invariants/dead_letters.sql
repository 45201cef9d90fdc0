-- dead_letters
-- No dead letter waits for a decision.
with waiting as (
    select 'order' as service, step, event_type, attempts, reason, status, created_at from orders.dead_letter
    union all
    select 'inventory', step, event_type, attempts, reason, status, created_at from inventory.dead_letter
    union all
    select 'payment', step, event_type, attempts, reason, status, created_at from payment.dead_letter
)
select format('%s: %s could not apply %s after %s attempts: %s', service, step, event_type, attempts, reason) as violation
from waiting
where status = 'PENDING'
order by created_at
