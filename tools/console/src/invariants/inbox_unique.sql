-- inbox_unique
-- No consumer has claimed an event twice, in any partition.
select format('%s: %s claimed event %s %s times', service, consumer, event_id, count(*)) as violation
from audit.inbox
group by service, consumer, event_id
having count(*) > 1
