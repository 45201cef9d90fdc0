-- Order's own view of the catalogue, built from inventory's events. A higher version wins.
create table product_view (
    sku        text        not null,
    name       text        not null,
    category   text,
    price      bigint      not null,
    currency   text        not null,
    status     text        not null,
    version    bigint      not null,
    updated_at timestamptz not null default now(),
    constraint product_view_pk primary key (sku),
    constraint product_view_status check (status in ('ACTIVE', 'DISCONTINUED'))
);
