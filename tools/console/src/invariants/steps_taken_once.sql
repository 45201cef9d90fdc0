-- steps_taken_once
-- In no saga a step took effect more often than events requested it: a forward step once, an undo once for each publication of
-- the cancellation.
with taken as (
    select saga_id, step, status = 'COMPENSATED' as is_undo, count(*) as times
    from saga.saga_step
    where status <> 'SKIPPED' and step <> 'drive_compensation'
    group by saga_id, step, status = 'COMPENSATED'
), cancelled as (
    select saga_id, count(*) as times
    from saga.saga_step
    where status = 'COMPLETED' and (step like 'cancel%' or step = 'drive_compensation')
    group by saga_id
)
select format('saga %s: %s took effect %s times, but was requested %s times', saga_id, taken.step, taken.times,
    case when taken.is_undo then coalesce(cancelled.times, 0) else 1 end) as violation
from taken
left join cancelled using (saga_id)
where taken.times > case when taken.is_undo then coalesce(cancelled.times, 0) else 1 end
