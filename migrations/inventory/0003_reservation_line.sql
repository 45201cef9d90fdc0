-- The stock an order holds, a row per SKU.
create table reservation_line (
    order_id uuid   not null,
    sku      text   not null,
    quantity bigint not null,
    status   text   not null default 'RESERVED',
    constraint reservation_line_pk primary key (order_id, sku),
    constraint reservation_line_reservation foreign key (order_id) references reservation,
    constraint reservation_line_quantity check (quantity > 0),
    constraint reservation_line_status check (status in ('RESERVED', 'RELEASED'))
) with (fillfactor = 80);
