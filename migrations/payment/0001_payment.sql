-- One payment an order, written before the gateway is asked (PENDING is the write-ahead intent; the
-- payment's id is the gateway's idempotency key). VOIDED: cancelled before anything was captured,
-- also when the cancellation came first (the tombstone).
create table payment (
    payment_id        uuid        not null,
    order_id          uuid        not null,
    saga_id           uuid        not null,
    amount            bigint      not null,
    currency          text        not null,
    method            text        not null,
    status            text        not null,
    gateway_reference text,
    decline_code      text,
    -- Set when the order's cancellation has been seen: from then on nothing may be charged.
    cancelled_at      timestamptz,
    captured_at       timestamptz,
    refunded_at       timestamptz,
    -- The aggregate's sequence: grows with every event of the payment.
    version           bigint      not null default 0,
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now(),
    constraint payment_pk primary key (payment_id),
    constraint payment_once_per_order unique (order_id),
    constraint payment_amount check (amount >= 0),
    constraint payment_status check (status in ('PENDING', 'CAPTURED', 'DECLINED', 'REFUNDED', 'VOIDED')),
    constraint payment_captured check (status not in ('CAPTURED', 'REFUNDED') or gateway_reference is not null),
    constraint payment_refunded check ((refunded_at is not null) = (status = 'REFUNDED'))
) with (fillfactor = 70);
