-- no_saga_stuck
-- No saga has FAILED, and none still runs a minute after its deadline.
select format('saga %s of order %s is FAILED: %s, due from %s', saga_id, business_key, coalesce(failure_reason, 'no reason'),
    coalesce(nullif(array_to_string(receipts_due, ', '), ''), 'no participant')) as violation
from saga.saga_instance
where status = 'FAILED'
union all
select format('saga %s of order %s is %s, overdue since %s', saga_id, business_key, status,
    coalesce(compensation_deadline, deadline))
from saga.saga_instance
where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING')
    and coalesce(compensation_deadline, deadline) < now() - interval '1 minute'
