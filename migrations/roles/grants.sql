-- What each role may do: its own schema's rows, and of the shared saga tables what its steps need.
-- Run by `provision` as the owner, any number of times. Nobody but the owner has DDL.
revoke create on schema public from public;
revoke all on schema orders, inventory, payment, saga from public;

grant usage on schema orders, saga to order_service;
grant usage on schema inventory, saga to inventory_service;
grant usage on schema payment, saga to payment_service;

grant select, insert, update, delete on all tables in schema orders to order_service;
grant select, insert, update, delete on all tables in schema inventory to inventory_service;
grant select, insert, update, delete on all tables in schema payment to payment_service;

-- Which migrations were applied is compared at boot, and written by nobody but the owner.
revoke insert, update, delete on orders._migration, orders._messaging_migration from order_service;
revoke insert, update, delete on inventory._migration, inventory._messaging_migration from inventory_service;
revoke insert, update, delete on payment._migration, payment._messaging_migration from payment_service;

grant execute on function orders.ensure_partitions(integer), orders.drop_partitions(interval, interval) to order_service;
grant execute on function inventory.ensure_partitions(integer), inventory.drop_partitions(interval, interval) to inventory_service;
grant execute on function payment.ensure_partitions(integer), payment.drop_partitions(interval, interval) to payment_service;

grant select on saga._migration to order_service, inventory_service, payment_service;
grant select, update on saga.saga_instance to order_service, inventory_service, payment_service;
grant select, insert on saga.saga_step to order_service, inventory_service, payment_service;
grant select, insert on saga.fault_hit to order_service, inventory_service, payment_service;
grant select, insert, update (ended_at) on saga.annotation to order_service, inventory_service, payment_service;
grant select, insert, update (passes, hits, disarmed) on saga.armed_fault to order_service, inventory_service, payment_service;
grant execute on function saga.activity() to order_service;
-- Only order begins sagas and lets finished ones be purged.
grant insert on saga.saga_instance to order_service;
grant execute on function saga.purge_terminal(interval, integer) to order_service;

-- Order explains why an order waits. It may ask the other schemas that, and read nothing else in them.
grant usage on schema inventory, payment to order_service;
grant execute on function orders.obstacles(uuid, text[]), inventory.obstacles(uuid, text[]), payment.obstacles(uuid, text[]) to order_service;
grant execute on function payment.at_gateway(uuid) to order_service;

-- The auditor reads everything but the tokens of cards and where customers live, which events hold, too (as payload, and as
-- event where one was discarded); and writes nothing. Partitions are read through the tables that they are parts of.
grant usage on schema orders, inventory, payment, saga to auditor;
revoke select on all tables in schema orders, inventory, payment, saga from auditor;
do $$
declare
    readable record;
    private constant name[] := array['payment_method', 'shipping_address', 'method', 'payload', 'event'];
begin
    for readable in
        select c.oid::regclass as name,
            case when bool_or(a.attname = any(private)) then format('(tableoid, %s)',
                string_agg(quote_ident(a.attname), ', ') filter (where a.attname <> all(private)))
            end as columns
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace::regnamespace::text in ('orders', 'inventory', 'payment', 'saga')
            and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition
        group by c.oid
    loop
        execute format('grant select %s on %s to auditor', readable.columns, readable.name);
    end loop;
end $$;
