-- nothing_owed
-- No completed saga owes a step after its pivot for longer than its deadline allowed, plus a minute.
select format('saga %s of order %s is COMPLETED since %s and owes a step of %s', saga_id, business_key, completed_at,
    array_to_string(receipts_due, ' and of ')) as violation
from saga.saga_instance
where status = 'COMPLETED' and receipts_due <> '{}'
    and completed_at + (deadline - started_at) < now() - interval '1 minute'
