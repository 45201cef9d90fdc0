-- The catalogue and its stock. What was ever supplied is either available or reserved.
create table product (
    sku        text        not null,
    name       text        not null,
    category   text,
    price      bigint      not null,
    currency   text        not null,
    available  bigint      not null,
    reserved   bigint      not null default 0,
    supplied   bigint      not null,
    status     text        not null default 'ACTIVE',
    -- The aggregate's sequence: grows with every event of the product.
    version    bigint      not null default 1,
    updated_at timestamptz not null default now(),
    constraint product_pk primary key (sku),
    constraint product_price check (price > 0),
    constraint product_available check (available >= 0),
    constraint product_reserved check (reserved >= 0),
    constraint product_conserved check (available + reserved = supplied),
    constraint product_status check (status in ('ACTIVE', 'DISCONTINUED'))
) with (fillfactor = 50);
