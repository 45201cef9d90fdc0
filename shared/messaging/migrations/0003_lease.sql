-- Who does what only one replica may do at a time. Time is the database's.
create table lease (
    name       text        not null,
    holder     text        not null,
    expires_at timestamptz not null,
    constraint lease_pk primary key (name)
);

-- The relay's lease. `epoch` grows with every takeover and guards every write of the relay;
-- the receipt is the last thing that the broker acknowledged to this service.
create table relay_lease (
    only_row       boolean     not null default true,
    holder         text        not null default '',
    epoch          bigint      not null default 0,
    expires_at     timestamptz not null default '-infinity',
    taken_at       timestamptz,
    paused         boolean     not null default false,
    stream_epoch   bigint      not null default 0,
    last_sequence  bigint      not null default 0,
    last_event_id  uuid,
    last_receipt_at timestamptz,
    -- How many events the reconciler has put back because the stream no longer had them.
    republished    bigint      not null default 0,
    constraint relay_lease_pk primary key (only_row),
    constraint relay_lease_only_row check (only_row)
) with (fillfactor = 50);

insert into relay_lease default values;
