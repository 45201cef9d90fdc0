-- outbox_empty
-- No event is parked, none has waited for its publication for a minute, and none that waited when the audit began still
-- does after the time given to settle.
select format('%s: %s %s is %s since %s%s', service, event_type, event_id, state, created_at,
    coalesce(' (' || attempts || ' attempts: ' || last_error || ')', '')) as violation
from audit.outbox
where state = 'PARKED'
    -- What is published again keeps the time at which it was written.
    or (created_at < now() - interval '1 minute' and republication = 0)
    -- An audit names those that were given time; whoever asks without an audit gives none.
    or coalesce(event_id = any (string_to_array(current_setting('audit.unsettled', true), ',')::uuid[]), true)
