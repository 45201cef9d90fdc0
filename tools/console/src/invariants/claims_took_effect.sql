-- claims_took_effect
-- A step that has claimed an event of a saga has written an entry in the saga's journal, in the same transaction: no event is
-- claimed without an effect.
with claimed as (
    -- A consumer is named after its service and its step: inventory-reserve_stock.
    select saga_id, split_part(consumer, '-', 2) as step, count(*) as times
    from audit.inbox
    join audit.outbox_published using (event_id)
    join saga.saga_instance using (saga_id)
    group by saga_id, split_part(consumer, '-', 2)
), taken as (
    select saga_id, step, count(*) as times
    from saga.saga_step
    group by saga_id, step
)
select format('saga %s: %s has claimed %s events, but its journal has %s', saga_id, step, claimed.times,
    coalesce(taken.times, 0)) as violation
from claimed
left join taken using (saga_id, step)
where claimed.times > coalesce(taken.times, 0)
