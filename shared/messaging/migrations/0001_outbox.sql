-- Events that are committed but not yet published. Tiny by design: publishing moves a row to
-- outbox_published. `payload` and `headers` are json, not jsonb: they leave as they were written.
create table outbox (
    event_id           uuid        not null,
    position           bigint      not null generated always as identity,
    aggregate_type     text        not null,
    aggregate_id       text        not null,
    aggregate_sequence bigint      not null,
    event_type         text        not null,
    subject            text        not null,
    headers            json        not null,
    payload            json        not null,
    saga_id            uuid,
    created_at         timestamptz not null default clock_timestamp(),
    attempts           integer     not null default 0,
    next_attempt_at    timestamptz,
    last_error         text,
    state              text        not null default 'PENDING',
    -- How often the event was put back after it had been published once (lost by the broker).
    -- It becomes part of the broker's message id, so its deduplication window does not swallow the repeat.
    republication      integer     not null default 0,
    constraint outbox_pk primary key (event_id),
    constraint outbox_position unique (position),
    constraint outbox_state check (state in ('PENDING', 'PARKED')),
    constraint outbox_payload_size check (octet_length(payload::text) <= 524288)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The aggregates that wait behind a refused or parked event; empty as a rule.
create index outbox_blocked on outbox (aggregate_id) where state = 'PARKED' or next_attempt_at is not null;
