-- dead_letters
-- No dead letter waits for a decision.
select format('%s: %s could not apply %s after %s attempts: %s', service, step, event_type, attempts, reason) as violation
from audit.dead_letter
where status = 'PENDING'
order by created_at
