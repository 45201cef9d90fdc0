-- What inventory answered to an order. One row an order, inserted by whichever comes first, its
-- creation or its cancellation: a TOMBSTONE is a cancellation that came first, and wins.
create table reservation (
    order_id   uuid        not null,
    saga_id    uuid        not null,
    status     text        not null,
    reason     text,
    -- The aggregate's sequence: grows with every event of the reservation.
    version    bigint      not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint reservation_pk primary key (order_id),
    constraint reservation_status check (status in ('RESERVED', 'REFUSED', 'RELEASED', 'TOMBSTONE'))
) with (fillfactor = 80);
