-- journal_legal
-- The journal of every saga is complete, begins at STARTED, has only legal transitions and ends at the saga's status.
with entry as (
    select saga_id, position, step, status, status_before, status_after,
        row_number() over ordered as expected_position,
        lag(status_after, 1, 'STARTED') over ordered as expected_before
    from saga.saga_step
    window ordered as (partition by saga_id order by position)
), last_entry as (
    select distinct on (saga_id) saga_id, position, status_after
    from saga.saga_step
    order by saga_id, position desc
)
select format('saga %s: entry %s (%s) should have position %s', saga_id, position, step, expected_position) as violation
from entry
where position <> expected_position
union all
select format('saga %s: entry %s (%s) begins at %s, but the one before it ended at %s',
    saga_id, position, step, status_before, expected_before)
from entry
where status_before <> expected_before
union all
select format('saga %s: entry %s (%s) goes from %s to %s', saga_id, position, step, status_before, status_after)
from entry
where status_before <> status_after
    and (status = 'SKIPPED'
        or (status_before, status_after) not in (
            ('STARTED', 'IN_PROGRESS'), ('STARTED', 'TIMED_OUT'), ('STARTED', 'COMPENSATING'),
            ('IN_PROGRESS', 'COMPLETED'), ('IN_PROGRESS', 'TIMED_OUT'), ('IN_PROGRESS', 'COMPENSATING'),
            ('TIMED_OUT', 'COMPENSATING'), ('COMPLETED', 'COMPENSATING'),
            ('COMPENSATING', 'COMPENSATED'), ('COMPENSATING', 'FAILED'), ('FAILED', 'COMPENSATING'),
            ('FAILED', 'COMPENSATED'))
        or (status_before = 'COMPLETED' and step <> 'cancel_order_on_request'))
union all
select format('saga %s is %s at version %s, but its journal ends with %s at %s', saga_id, s.status, s.version,
    coalesce(l.status_after, 'nothing'), coalesce(l.position, 0))
from saga.saga_instance s
left join last_entry l using (saga_id)
where l.status_after is distinct from s.status or l.position is distinct from s.version
