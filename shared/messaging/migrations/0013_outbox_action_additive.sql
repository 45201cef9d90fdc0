-- What an operator did to a parked event, when, and why. An event that was discarded is kept here as it was in the outbox: it
-- was never published, and its aggregate's followers were.
create table outbox_action (
    action_id bigint      generated always as identity,
    event_id  uuid        not null,
    acted_at  timestamptz not null default clock_timestamp(),
    actor     text        not null,
    action    text        not null,
    reason    text,
    event     json,
    constraint outbox_action_pk primary key (action_id),
    constraint outbox_action_known check (action in ('REQUEUE', 'DISCARD')),
    constraint outbox_action_event check ((event is not null) = (action = 'DISCARD'))
);

create index outbox_action_entry on outbox_action (event_id, action_id);
