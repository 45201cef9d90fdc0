-- Why the relay could not publish, and when; null once it publishes again.
alter table relay_lease
    add column last_failure    text,
    add column last_failure_at timestamptz;
