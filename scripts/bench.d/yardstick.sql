-- For pgbench: one saga in hand-written SQL. It changes the same rows in the same tables as the suite does
-- for a confirmed order of two lines, one event at a time: four transactions for the steps, and after each of them
-- what the relay does with its event. No broker, no HTTP, no card processor; the ids come from the server, without extra
-- statements. Two products are drawn as the load draws them, each as often as every other, and
-- locked in the order of their SKUs. Some thirty round trips; `fresh` makes a procedure of the same
-- statements, for which one is enough.
\set customer random(0, 96)
\set one random(1, 20)
\set other 1 + mod(:one + random(0, 18), 20)
\set product_a least(:one, :other)
\set product_b greatest(:one, :other)
\set quantity random(1, 3)

-- create_order
begin;
insert into orders.idempotency_key (customer_id, key, fingerprint, order_id)
    values ('customer-' || :customer, uuid_v7()::text, sha256(int8send(:quantity)), uuid_v7())
    returning order_id \gset
select sum(price) * :quantity as total from orders.product_view where sku in (sku_of(:product_a), sku_of(:product_b)) \gset
insert into orders.customer_order (order_id, customer_id, total_amount, currency, payment_method, saga_id)
    values (:order_id, 'customer-' || :customer, :total, 'USD', 'tok_visa', uuid_v7())
    returning saga_id \gset
insert into orders.order_line (order_id, line, sku, name, quantity, unit_price)
    values (:order_id, 1, sku_of(:product_a), 'Product', :quantity, 1000), (:order_id, 2, sku_of(:product_b), 'Product', :quantity, 1000);
insert into orders.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)
    values (uuid_v7(), 'order', :order_id, 1, 'OrderCreated.v1', 'events.order.OrderCreated', headers_of(:saga_id), created_of(:order_id), :saga_id)
    returning event_id \gset
insert into saga.saga_instance (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps,
        deadline, initiating_service, initiating_event_id, last_event_id, last_service, version, traceparent)
    values (:saga_id, 'OrderFulfillment', :order_id, :order_id, '4f8ec95344ee47b31b203f3d7c41cc1e', 'STARTED', 0, 4,
        now() + interval '60 s', 'order', :event_id, :event_id, 'order', 1, '00-4f8ec95344ee47b31b203f3d7c41cc1e-f6a7e5406970b218-00');
insert into saga.saga_step (saga_id, position, step_number, step, service, direction, event_type, event_id, status, status_before, status_after, trace_id)
    values (:saga_id, 1, 0, 'create_order', 'order', 'FORWARD', 'OrderCreated.v1', :event_id, 'COMPLETED', 'STARTED', 'STARTED', '4f8ec95344ee47b31b203f3d7c41cc1e');
commit;
with gone as (delete from orders.outbox where event_id = :event_id returning *)
    insert into orders.outbox_published select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
        subject, headers, payload, saga_id, created_at, clock_timestamp(), 'ORDER', position, 1, 'relay', republication from gone;

-- reserve_stock
begin;
insert into inventory.inbox (event_id, consumer) values (:event_id, 'inventory-reserve_stock') on conflict do nothing;
select status, version from saga.saga_instance where saga_id = :saga_id for update;
select sku, available, reserved from inventory.product where sku in (sku_of(:product_a), sku_of(:product_b)) order by sku for update;
insert into inventory.reservation (order_id, saga_id, status) values (:order_id, :saga_id, 'RESERVED');
insert into inventory.reservation_line (order_id, sku, quantity)
    values (:order_id, sku_of(:product_a), :quantity), (:order_id, sku_of(:product_b), :quantity);
update inventory.product set available = available - :quantity, reserved = reserved + :quantity, version = version + 1, updated_at = now()
    where sku in (sku_of(:product_a), sku_of(:product_b));
insert into inventory.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)
    values (uuid_v7(), 'reservation', :order_id, 1, 'StockReserved.v1', 'events.inventory.StockReserved', headers_of(:saga_id), reserved_of(:order_id), :saga_id)
    returning event_id \gset
update saga.saga_instance set status = 'IN_PROGRESS', current_step = 1, last_event_id = :event_id, last_service = 'inventory',
        last_progress_at = now(), stall_nudged = false, version = version + 1
    where saga_id = :saga_id;
insert into saga.saga_step (saga_id, position, step_number, step, service, direction, event_type, event_id, status, status_before, status_after, trace_id)
    values (:saga_id, 2, 1, 'reserve_stock', 'inventory', 'FORWARD', 'StockReserved.v1', :event_id, 'COMPLETED', 'STARTED', 'IN_PROGRESS', '4f8ec95344ee47b31b203f3d7c41cc1e');
commit;
with gone as (delete from inventory.outbox where event_id = :event_id returning *)
    insert into inventory.outbox_published select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
        subject, headers, payload, saga_id, created_at, clock_timestamp(), 'INVENTORY', position, 1, 'relay', republication from gone;

-- process_payment
begin;
insert into payment.inbox (event_id, consumer) values (:event_id, 'payment-process_payment') on conflict do nothing;
select status, version from saga.saga_instance where saga_id = :saga_id for update;
insert into payment.payment (payment_id, order_id, saga_id, amount, currency, method, status)
    values (uuid_v7(), :order_id, :saga_id, :total, 'USD', 'tok_visa', 'PENDING');
update payment.payment set status = 'CAPTURED', gateway_reference = :order_id, captured_at = now(), version = version + 1, updated_at = now()
    where order_id = :order_id;
insert into payment.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)
    values (uuid_v7(), 'payment', :order_id, 1, 'PaymentProcessed.v1', 'events.payment.PaymentProcessed', headers_of(:saga_id), processed_of(:order_id), :saga_id)
    returning event_id \gset
update saga.saga_instance set current_step = 2, last_event_id = :event_id, last_service = 'payment',
        last_progress_at = now(), stall_nudged = false, version = version + 1
    where saga_id = :saga_id;
insert into saga.saga_step (saga_id, position, step_number, step, service, direction, event_type, event_id, status, status_before, status_after, trace_id)
    values (:saga_id, 3, 2, 'process_payment', 'payment', 'FORWARD', 'PaymentProcessed.v1', :event_id, 'COMPLETED', 'IN_PROGRESS', 'IN_PROGRESS', '4f8ec95344ee47b31b203f3d7c41cc1e');
commit;
with gone as (delete from payment.outbox where event_id = :event_id returning *)
    insert into payment.outbox_published select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
        subject, headers, payload, saga_id, created_at, clock_timestamp(), 'PAYMENT', position, 1, 'relay', republication from gone;

-- confirm_order
begin;
insert into orders.inbox (event_id, consumer) values (:event_id, 'order-confirm_order') on conflict do nothing;
select status, version from saga.saga_instance where saga_id = :saga_id for update;
select status, version from orders.customer_order where order_id = :order_id for update;
update orders.customer_order set status = 'CONFIRMED', version = version + 1, updated_at = now() where order_id = :order_id;
insert into orders.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)
    values (uuid_v7(), 'order', :order_id, 2, 'OrderConfirmed.v1', 'events.order.OrderConfirmed', headers_of(:saga_id), confirmed_of(:order_id), :saga_id)
    returning event_id \gset
update saga.saga_instance set status = 'COMPLETED', current_step = 3, last_event_id = :event_id, last_service = 'order',
        last_progress_at = now(), stall_nudged = false, completed_at = now(), version = version + 1
    where saga_id = :saga_id;
insert into saga.saga_step (saga_id, position, step_number, step, service, direction, event_type, event_id, status, status_before, status_after, trace_id)
    values (:saga_id, 4, 3, 'confirm_order', 'order', 'FORWARD', 'OrderConfirmed.v1', :event_id, 'COMPLETED', 'IN_PROGRESS', 'COMPLETED', '4f8ec95344ee47b31b203f3d7c41cc1e');
commit;
with gone as (delete from orders.outbox where event_id = :event_id returning *)
    insert into orders.outbox_published select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
        subject, headers, payload, saga_id, created_at, clock_timestamp(), 'ORDER', position, 1, 'relay', republication from gone;
