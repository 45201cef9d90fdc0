-- An order as its customer sees it. PENDING until the saga ends; order alone decides how it ends.
create table customer_order (
    order_id         uuid        not null,
    customer_id      text        not null,
    status           text        not null default 'PENDING',
    total_amount     bigint      not null,
    currency         text        not null,
    payment_method   text        not null,
    shipping_address json,
    saga_id          uuid        not null,
    cancel_reason    text,
    -- The aggregate's sequence: grows with every event of the order.
    version          bigint      not null default 1,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    constraint customer_order_pk primary key (order_id),
    constraint customer_order_status check (status in ('PENDING', 'CONFIRMED', 'CANCELLED')),
    constraint customer_order_total check (total_amount >= 0),
    constraint customer_order_cancel_reason check ((cancel_reason is not null) = (status = 'CANCELLED'))
) with (fillfactor = 80);

create index customer_order_customer on customer_order (customer_id, order_id);
