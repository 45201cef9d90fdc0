-- Every published event with its receipt: where in which stream it is, and which relay put it there.
-- Append-only, a partition per day of the UUIDv7 id; old days are dropped whole.
create table outbox_published (
    event_id           uuid        not null,
    position           bigint      not null,
    aggregate_type     text        not null,
    aggregate_id       text        not null,
    aggregate_sequence bigint      not null,
    event_type         text        not null,
    subject            text        not null,
    headers            json        not null,
    payload            json        not null,
    saga_id            uuid,
    created_at         timestamptz not null,
    published_at       timestamptz not null default clock_timestamp(),
    stream             text        not null,
    stream_sequence    bigint      not null,
    -- The stream's time of creation, in nanoseconds: a re-created stream is another epoch. 0: the stream
    -- came back in an older state, without this event, and nobody needs it again.
    stream_epoch       bigint      not null,
    relay              text        not null,
    republication      integer     not null default 0,
    constraint outbox_published_pk primary key (event_id)
) partition by range (event_id);

-- Events of no saga are few; the reconciler looks for lost ones among them.
create index outbox_published_of_no_saga on outbox_published (event_id) where saga_id is null;

-- Tiny, since sequences grow as rows do; for what a stream that came back older has lost.
create index outbox_published_sequence on outbox_published using brin (stream_sequence) with (pages_per_range = 32);

create table outbox_published_default partition of outbox_published default;

-- Failed attempts to publish one message, so that an entry's whole history can be shown.
create table outbox_attempt (
    event_id     uuid        not null,
    attempt      integer     not null,
    attempted_at timestamptz not null default clock_timestamp(),
    relay        text        not null,
    error        text        not null,
    constraint outbox_attempt_pk primary key (event_id, attempt)
);
