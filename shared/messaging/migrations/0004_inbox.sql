-- Which consumer has had which event. The row is inserted in the transaction of the effect, so an
-- event has its effect exactly once per consumer. Partitioned by the UUIDv7 id: unique for ever,
-- dropped by the day.
create table inbox (
    event_id     uuid        not null,
    consumer     text        not null,
    processed_at timestamptz not null default clock_timestamp(),
    constraint inbox_pk primary key (event_id, consumer)
) partition by range (event_id);

create table inbox_default partition of inbox default;

-- Failed attempts to apply one event, counted here and not by the broker: an outage burns none.
create table delivery_attempt (
    consumer   text        not null,
    event_id   uuid        not null,
    attempts   integer     not null,
    last_error text        not null,
    updated_at timestamptz not null default now(),
    constraint delivery_attempt_pk primary key (consumer, event_id)
);

-- Consumers that an operator has paused; every replica obeys.
create table paused_consumer (
    consumer  text        not null,
    paused_at timestamptz not null default now(),
    constraint paused_consumer_pk primary key (consumer)
);
