-- What the yardstick needs beside the project's own tables: the suite's twenty products, ids, and documents that are as
-- long as the suite's (headers and payloads without the ids that vary).
create function uuid_v7() returns uuid language sql volatile as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;

create function sku_of(product integer) returns text language sql immutable as $$
    select 'LOAD-' || lpad(product::text, 2, '0')
$$;

create function headers_of(saga_id uuid) returns json language sql immutable as $$
    select ('{"ce-source": "/services/order", "ce-sagatype": "OrderFulfillment", "ce-stepnumber": "1", "ce-compensating": "false", "ce-correlationid": "'
        || saga_id || '", "ce-causationid": "01a1fd35-0588-71e8-9a3e-9aa06a764ef7", "traceparent": "00-fe8bbd2c1649e11eb1edffaa9ce07dbe-1646121f39ad5b9d-00"}')::json
$$;

create function created_of(order_id uuid) returns json language sql immutable as $$
    select ('{"order_id": "' || order_id || '", "customer_id": "customer-7", "total": {"amount": 3150, "currency": "USD"}, "payment_method": "tok_visa", '
        || '"lines": [{"sku": "LOAD-08", "name": "Load LOAD-08", "quantity": 1, "unit_price": {"amount": 1350, "currency": "USD"}}, '
        || '{"sku": "LOAD-17", "name": "Load LOAD-17", "quantity": 1, "unit_price": {"amount": 1800, "currency": "USD"}}]}')::json
$$;

create function reserved_of(order_id uuid) returns json language sql immutable as $$
    select ('{"order_id": "' || order_id || '", "customer_id": "customer-7", "total": {"amount": 3150, "currency": "USD"}, "payment_method": "tok_visa", '
        || '"lines": [{"sku": "LOAD-08", "quantity": 1}, {"sku": "LOAD-17", "quantity": 1}]}')::json
$$;

create function processed_of(order_id uuid) returns json language sql immutable as $$
    select ('{"order_id": "' || order_id || '", "payment_id": "01a1fd35-05ab-71b8-babd-bc30b01634eb", '
        || '"amount": {"amount": 3150, "currency": "USD"}, "gateway_reference": "01a1fd35-05af-772e-bed8-3519cd691aca"}')::json
$$;

create function confirmed_of(order_id uuid) returns json language sql immutable as $$
    select ('{"order_id": "' || order_id || '", "customer_id": "customer-7", "total": {"amount": 3150, "currency": "USD"}}')::json
$$;

insert into inventory.product (sku, name, price, currency, available, supplied)
    select sku_of(n), 'Load ' || sku_of(n), 1000 + 50 * n, 'USD', 1000000000, 1000000000 from generate_series(1, 20) as n;
insert into orders.product_view (sku, name, price, currency, status, version)
    select sku, name, price, currency, status, version from inventory.product;
