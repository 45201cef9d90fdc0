-- inbox_unique
-- No consumer has had an event twice, in whichever partition.
select format('%s: %s had event %s %s times', service, consumer, event_id, count(*)) as violation
from audit.inbox
group by service, consumer, event_id
having count(*) > 1
