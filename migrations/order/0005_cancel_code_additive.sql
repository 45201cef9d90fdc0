-- Why an order was cancelled, as the code of its event: a cancellation that is published again says the same. Null where a
-- build without this column has cancelled the order. There is nothing to validate yet, so no row is read.
alter table customer_order
    add column cancel_code text,
    add constraint customer_order_cancel_code check (
        cancel_code is null
        or (status = 'CANCELLED' and cancel_code in ('OUT_OF_STOCK', 'PAYMENT_REFUSED', 'TIMED_OUT', 'CUSTOMER_REQUEST'))
    ) not valid;
