-- Which order a customer's key stands for; written in the order's own transaction.
create table idempotency_key (
    customer_id text        not null,
    key         text        not null,
    fingerprint bytea       not null,
    order_id    uuid        not null,
    created_at  timestamptz not null default now(),
    constraint idempotency_key_pk primary key (customer_id, key)
);
create index idempotency_key_age on idempotency_key (created_at);
