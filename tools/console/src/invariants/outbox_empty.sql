-- outbox_empty
-- No event is parked, none has waited for its publication for a minute, and none that waited when the audit began still waits
-- after the time given to settle.
select format('%s: %s %s is %s since %s%s', service, event_type, event_id, state, created_at,
    coalesce(' (' || attempts || ' attempts: ' || last_error || ')', '')) as violation
from audit.outbox
where state = 'PARKED'
    -- A republished event keeps its creation time.
    or (created_at < now() - interval '1 minute' and republication = 0)
    -- The audit sets the events that were given time to settle; without the setting every event counts.
    or coalesce(event_id = any (string_to_array(current_setting('audit.unsettled', true), ',')::uuid[]), true)
