-- What was ordered, at the price of that moment.
create table order_line (
    order_id   uuid     not null,
    line       smallint not null,
    sku        text     not null,
    name       text     not null,
    quantity   bigint   not null,
    unit_price bigint   not null,
    constraint order_line_pk primary key (order_id, line),
    constraint order_line_order foreign key (order_id) references customer_order,
    constraint order_line_quantity check (quantity between 1 and 1000000),
    constraint order_line_unit_price check (unit_price >= 0)
);
