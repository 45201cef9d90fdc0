-- Who posts this service's published events to the webhook, and how far: the endpoint has accepted the events up to `ordinal`, or they
-- are in webhook_event. Null before it is switched on for the first time, when it begins at the end. `epoch` guards each write.
create table webhook_position (
    only_row        boolean     not null default true,
    holder          text        not null default '',
    epoch           bigint      not null default 0,
    expires_at      timestamptz not null default '-infinity',
    ordinal         bigint,
    -- Why nothing was accepted; null once something is.
    last_failure    text,
    last_failure_at timestamptz,
    constraint webhook_position_pk primary key (only_row),
    constraint webhook_position_only_row check (only_row)
) with (fillfactor = 50);

insert into webhook_position default values;

-- Events that were held back: those that failed or were refused, and the later ones of their aggregates. A copy, because the archive
-- does not keep events for ever.
create table webhook_event (
    event_id           uuid        not null,
    ordinal            bigint      not null,
    aggregate_type     text        not null,
    aggregate_id       text        not null,
    aggregate_sequence bigint      not null,
    event_type         text        not null,
    headers            text        not null,
    payload            text        not null,
    saga_id            uuid,
    created_at         timestamptz not null,
    held_at            timestamptz not null default clock_timestamp(),
    state              text        not null default 'PENDING',
    attempts           integer     not null default 0,
    next_attempt_at    timestamptz,
    last_error         text,
    constraint webhook_event_pk primary key (event_id),
    constraint webhook_event_place unique (aggregate_type, aggregate_id, ordinal),
    constraint webhook_event_state check (state in ('PENDING', 'PARKED'))
);
