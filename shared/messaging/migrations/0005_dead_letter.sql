-- Events that a step could not apply, kept with the whole context of the failure. Written in the
-- database before the broker gets its ack, so nothing is ever dropped.
create table dead_letter (
    dead_letter_id uuid        not null,
    event_id       uuid,
    event_type     text        not null,
    subject        text        not null,
    headers        json        not null,
    payload        bytea       not null,
    consumer       text        not null,
    step           text        not null,
    reason         text        not null,
    error_chain    text        not null,
    source_service text        not null,
    saga_id        uuid,
    correlation_id text,
    trace_id       text,
    attempts       integer     not null,
    status         text        not null default 'PENDING',
    replay_count   integer     not null default 0,
    notes          text,
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    constraint dead_letter_pk primary key (dead_letter_id),
    constraint dead_letter_once unique (consumer, event_id),
    constraint dead_letter_status check (status in ('PENDING', 'REPLAYED', 'RESOLVED', 'DISCARDED')),
    constraint dead_letter_replays check (replay_count between 0 and 3)
);

create index dead_letter_pending on dead_letter (created_at) where status = 'PENDING';

-- Who did what to a dead letter, when, and why.
create table dead_letter_action (
    dead_letter_id uuid        not null,
    acted_at       timestamptz not null default clock_timestamp(),
    actor          text        not null,
    action         text        not null,
    reason         text,
    outcome        text        not null,
    constraint dead_letter_action_pk primary key (dead_letter_id, acted_at),
    constraint dead_letter_action_of foreign key (dead_letter_id) references dead_letter on delete cascade
);
