-- One order of each kind, told apart by the last digit of its ids:
--   1 confirmed   2 out of stock   3 card declined   4 cancelled after it was confirmed
--   5 in the middle of its saga    6 confirmed, saga purged long ago   7 timed out, payment never asked
-- Triggers and foreign keys are off, because sagas appear here in the state that they have reached.
set session_replication_role = replica;

create function pg_temp.id(kind text, n integer) returns uuid language sql as
    $$ select format('0000000%s-0000-7000-8000-00000000000%s', kind, n)::uuid $$;

insert into orders.customer_order
    (order_id, customer_id, status, total_amount, currency, payment_method, saga_id, cancel_reason, updated_at)
select pg_temp.id('a', n), 'alice', status, 3000, 'USD', 'tok_visa', pg_temp.id('b', n),
    case when status = 'CANCELLED' then 'as it goes' end,
    case when n = 6 then now() - interval '30 days' else now() end
from (values (1, 'CONFIRMED'), (2, 'CANCELLED'), (3, 'CANCELLED'), (4, 'CANCELLED'), (5, 'PENDING'),
    (6, 'CONFIRMED'), (7, 'CANCELLED')) v (n, status);

insert into orders.order_line (order_id, line, sku, name, quantity, unit_price)
select pg_temp.id('a', n), line, sku, sku, quantity, 1000
from generate_series(1, 7) n, (values (1, 'LAMP', 1), (2, 'DESK', 2)) v (line, sku, quantity);

insert into saga.saga_instance
    (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps, started_at, deadline,
     compensation_deadline, completed_at, failed_at_step, initiating_service, initiating_event_id, last_event_id,
     last_service, version)
select pg_temp.id('b', n), 'OrderFulfillment', pg_temp.id('a', n), 'c', 't', status, 1, 4, now(), now() + interval '1 minute',
    case when status = 'COMPENSATED' then now() + interval '1 minute' end,
    case when status in ('COMPLETED', 'COMPENSATED') then now() end, null, 'order', pg_temp.id('e', n), pg_temp.id('e', n),
    'order', version
from (values (1, 'COMPLETED', 4), (2, 'COMPENSATED', 5), (3, 'COMPENSATED', 6), (4, 'COMPENSATED', 7),
    (5, 'IN_PROGRESS', 2), (7, 'COMPENSATED', 8)) v (n, status, version);

insert into saga.saga_step
    (saga_id, position, step_number, step, service, direction, event_type, status, status_before, status_after)
select pg_temp.id('b', n), position, 0, step, 'order', 'FORWARD', 'Something.v1', status, status_before, status_after
from (values
    (1, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (1, 2, 'reserve_stock', 'COMPLETED', 'STARTED', 'IN_PROGRESS'),
    (1, 3, 'process_payment', 'COMPLETED', 'IN_PROGRESS', 'IN_PROGRESS'),
    (1, 4, 'confirm_order', 'COMPLETED', 'IN_PROGRESS', 'COMPLETED'),
    (2, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (2, 2, 'reserve_stock', 'FAILED', 'STARTED', 'STARTED'),
    (2, 3, 'cancel_unfillable_order', 'COMPLETED', 'STARTED', 'COMPENSATING'),
    (2, 4, 'refund_payment', 'COMPENSATED', 'COMPENSATING', 'COMPENSATING'),
    (2, 5, 'release_stock', 'COMPENSATED', 'COMPENSATING', 'COMPENSATED'),
    (3, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (3, 2, 'reserve_stock', 'COMPLETED', 'STARTED', 'IN_PROGRESS'),
    (3, 3, 'process_payment', 'FAILED', 'IN_PROGRESS', 'IN_PROGRESS'),
    (3, 4, 'cancel_unpaid_order', 'COMPLETED', 'IN_PROGRESS', 'COMPENSATING'),
    (3, 5, 'release_stock', 'COMPENSATED', 'COMPENSATING', 'COMPENSATING'),
    (3, 6, 'refund_payment', 'COMPENSATED', 'COMPENSATING', 'COMPENSATED'),
    (4, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (4, 2, 'reserve_stock', 'COMPLETED', 'STARTED', 'IN_PROGRESS'),
    (4, 3, 'process_payment', 'COMPLETED', 'IN_PROGRESS', 'IN_PROGRESS'),
    (4, 4, 'confirm_order', 'COMPLETED', 'IN_PROGRESS', 'COMPLETED'),
    (4, 5, 'cancel_order_on_request', 'COMPLETED', 'COMPLETED', 'COMPENSATING'),
    (4, 6, 'release_stock', 'COMPENSATED', 'COMPENSATING', 'COMPENSATING'),
    (4, 7, 'refund_payment', 'COMPENSATED', 'COMPENSATING', 'COMPENSATED'),
    (5, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (5, 2, 'reserve_stock', 'COMPLETED', 'STARTED', 'IN_PROGRESS'),
    (7, 1, 'create_order', 'COMPLETED', 'STARTED', 'STARTED'),
    (7, 2, 'detect_timeout', 'COMPLETED', 'STARTED', 'TIMED_OUT'),
    (7, 3, 'reserve_stock', 'SKIPPED', 'TIMED_OUT', 'TIMED_OUT'),
    (7, 4, 'cancel_timed_out_order', 'COMPLETED', 'TIMED_OUT', 'COMPENSATING'),
    (7, 5, 'release_stock', 'COMPENSATED', 'COMPENSATING', 'COMPENSATING'),
    (7, 6, 'refund_payment', 'COMPENSATED', 'COMPENSATING', 'COMPENSATED'),
    (7, 7, 'drive_compensation', 'COMPLETED', 'COMPENSATED', 'COMPENSATED'),
    (7, 8, 'release_stock', 'COMPENSATED', 'COMPENSATED', 'COMPENSATED')
) v (n, position, step, status, status_before, status_after);

insert into inventory.product (sku, name, price, currency, available, reserved, supplied) values
    ('LAMP', 'Lamp', 1000, 'USD', 7, 3, 10),
    ('DESK', 'Desk', 1000, 'USD', 0, 6, 6);

insert into orders.product_view (sku, name, price, currency, status, version)
select sku, name, price, currency, status, version
from inventory.product;

insert into inventory.reservation (order_id, saga_id, status)
select pg_temp.id('a', n), pg_temp.id('b', n), status
from (values (1, 'RESERVED'), (2, 'REFUSED'), (3, 'RELEASED'), (4, 'RELEASED'), (5, 'RESERVED'), (6, 'RESERVED'),
    (7, 'TOMBSTONE'), (9, 'TOMBSTONE')) v (n, status);

insert into inventory.reservation_line (order_id, sku, quantity, status)
select order_id, sku, quantity, status
from inventory.reservation, (values ('LAMP', 1), ('DESK', 2)) v (sku, quantity)
where status in ('RESERVED', 'RELEASED');

insert into payment.payment
    (payment_id, order_id, saga_id, amount, currency, method, status, gateway_reference, refunded_at)
select pg_temp.id('c', n), pg_temp.id('a', n), pg_temp.id('b', n), 3000, 'USD', 'tok_visa', status,
    case when status in ('CAPTURED', 'REFUNDED') then 'charge-' || n end, case when status = 'REFUNDED' then now() end
from (values (1, 'CAPTURED'), (2, 'VOIDED'), (3, 'DECLINED'), (4, 'REFUNDED'), (5, 'PENDING'), (6, 'CAPTURED'),
    (7, 'VOIDED'), (9, 'VOIDED')) v (n, status);

-- Two events of one order are published; receipts of a stream that is no more.
insert into orders.outbox_published
    (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, created_at,
     stream, stream_sequence, stream_epoch, relay)
select pg_temp.id('e', n), n, 'order', pg_temp.id('a', 1)::text, n, 'Order.v1', 'events.order.Order', '{}', '{}', now(),
    'ORDER', n, 1, 'relay'
from generate_series(1, 2) n;

insert into payment.inbox (event_id, consumer) values
    (pg_temp.id('e', 1), 'payment-process_payment'),
    (pg_temp.id('e', 1), 'payment-refund_payment');

insert into orders.dead_letter
    (dead_letter_id, event_type, subject, headers, payload, consumer, step, reason, error_chain, source_service, attempts,
     status)
values (pg_temp.id('d', 1), 'PaymentProcessed.v1', 'events.payment.PaymentProcessed', '{}', '', 'order-confirm_order',
    'confirm_order', 'poison', 'poison', 'payment', 3, 'RESOLVED');
