//! Each invariant passes the sound suite and finds what is planted against it.

use console::audit::{Violations, check, invariants};
use sqlx::{Connection, PgConnection};

use crate::fixture::{database, run};

macro_rules! planted {
    ($($name:ident: $text:literal after $sql:literal;)*) => { &[$((stringify!($name), $sql, $text)),*] };
}

/// The invariant, the planted violation, and the expected text.
const PLANTED: &[(&str, &str, &str)] = planted! {
    stock_conserved: "LAMP: 8 available + 3 reserved, but 10 supplied" after
        "alter table inventory.product drop constraint product_conserved;
         update inventory.product set available = 8 where sku = 'LAMP'";
    stock_conserved: "DESK: 6 reserved, but the reservations hold 4" after
        "update inventory.reservation_line set status = 'RELEASED' where sku = 'DESK' and order_id::text like '%1'";
    stock_conserved: "GHOST: 0 reserved, but the reservations hold 1" after
        "insert into inventory.reservation_line values (ORDER_1, 'GHOST', 1)";
    money_conserved: "USD: 5999 captured and kept, but 6000 confirmed" after
        "update payment.payment set amount = 2999 where order_id = ORDER_1";
    money_conserved: "EUR: 3000 captured and kept, but 0 confirmed" after
        "update payment.payment set currency = 'EUR' where order_id = ORDER_1";
    catalogue_agrees: "order knows it as Lamp for 999" after "update orders.product_view set price = 999 where sku = 'LAMP'";
    catalogue_agrees: "order knows it as nothing for" after "delete from orders.product_view where sku = 'LAMP'";
    catalogue_agrees: "and inventory as nothing for" after "delete from inventory.product where sku = 'LAMP'";
    order_total: "2 lines worth 5000" after "update orders.order_line set quantity = 3 where order_id = ORDER_1 and line = 1";
    order_total: "0 lines worth 0" after "delete from orders.order_line where order_id = ORDER_1";
    order_terminal: "is PENDING, but its saga is COMPLETED" after
        "update orders.customer_order set status = 'PENDING' where order_id = ORDER_1";
    order_terminal: "is PENDING, but its saga is missing" after "delete from saga.saga_instance where saga_id = SAGA_5";
    order_agrees_with_saga: "is CONFIRMED, but its saga is COMPENSATED" after
        "update orders.customer_order set status = 'CONFIRMED', cancel_reason = null where order_id = ORDER_2";
    order_agrees_with_saga: "is CANCELLED, but its saga is COMPENSATING (unsettled: due from payment)" after
        "update saga.saga_instance set status = 'COMPENSATING', completed_at = null, receipts_due = '{payment}'
         where saga_id = SAGA_2";
    order_agrees_with_saga: "but its saga is missing" after "delete from saga.saga_instance where saga_id = SAGA_1";
    order_agrees_with_saga: "which belongs to" after
        "update saga.saga_instance set business_key = SAGA_1 where saga_id = SAGA_1";
    order_agrees_with_reservation: "is CONFIRMED, but its reservation is missing" after
        "delete from inventory.reservation where order_id = ORDER_1";
    order_agrees_with_reservation: "is CANCELLED, but its reservation is RESERVED" after
        "update inventory.reservation set status = 'RESERVED' where order_id = ORDER_3";
    order_agrees_with_reservation: "is PENDING, but its reservation is TOMBSTONE" after
        "update inventory.reservation set status = 'TOMBSTONE' where order_id = ORDER_5";
    order_agrees_with_reservation: "1 x LAMP ordered, but the reservation is for 9" after
        "update inventory.reservation_line set quantity = 9 where order_id = ORDER_1 and sku = 'LAMP'";
    order_agrees_with_reservation: "0 x LAMP ordered, but the reservation is for 1" after
        "insert into inventory.reservation_line values (ORDER_2, 'LAMP', 1)";
    order_agrees_with_reservation: "the reservation is RESERVED, but its line" after
        "update inventory.reservation_line set status = 'RELEASED' where order_id = ORDER_1";
    order_agrees_with_reservation: "but its reservation 0000000b" after
        "update inventory.reservation set saga_id = SAGA_2 where order_id = ORDER_1";
    order_agrees_with_payment: "is CONFIRMED, but its payment is PENDING" after
        "update payment.payment set status = 'PENDING' where order_id = ORDER_1";
    order_agrees_with_payment: "is CANCELLED, but its payment is missing" after
        "delete from payment.payment where order_id = ORDER_2";
    order_agrees_with_payment: "is PENDING, but its payment is VOIDED" after
        "update payment.payment set status = 'VOIDED' where order_id = ORDER_5";
    order_agrees_with_payment: "is worth 3000 USD, but its payment 2999 USD" after
        "update payment.payment set amount = 2999 where order_id = ORDER_4";
    order_agrees_with_payment: "but its payment 0000000b" after
        "update payment.payment set saga_id = SAGA_2 where order_id = ORDER_1";
    one_charge_per_order: "has 2 payments" after
        "alter table payment.payment drop constraint payment_once_per_order;
         update payment.payment set order_id = ORDER_1 where order_id = ORDER_6";
    one_charge_per_order: "charge charge-1 stands for 2 payments" after
        "update payment.payment set gateway_reference = 'charge-1' where order_id = ORDER_6";
    nothing_held_on_cancelled: "is CANCELLED, but holds 2 x DESK" after
        "update inventory.reservation_line set status = 'RESERVED' where order_id = ORDER_3 and sku = 'DESK'";
    nothing_held_on_cancelled: "is CANCELLED, but 3000 USD are captured" after
        "update payment.payment set status = 'CAPTURED', refunded_at = null where order_id = ORDER_4";
    no_orphans: "(REFUSED) belongs to no order" after
        "update inventory.reservation set status = 'REFUSED' where order_id::text like '%9'";
    no_orphans: "(PENDING) belongs to no order" after
        "update payment.payment set status = 'PENDING' where order_id::text like '%9'";
    no_orphans: "(COMPENSATED) belongs to no order" after "delete from orders.customer_order where order_id = ORDER_2";
    no_saga_stuck: "is FAILED: no confirmation, due from inventory" after
        "update saga.saga_instance set status = 'FAILED', failure_reason = 'no confirmation', receipts_due = '{inventory}'
         where saga_id = SAGA_2";
    no_saga_stuck: "is IN_PROGRESS, overdue since" after
        "update saga.saga_instance set deadline = now() - interval '2 minutes' where saga_id = SAGA_5";
    nothing_owed: "is COMPLETED since" after
        "update saga.saga_instance set receipts_due = '{shipping}', started_at = now() - interval '6 minutes',
         deadline = now() - interval '5 minutes', completed_at = now() - interval '3 minutes'
         where saga_id = SAGA_1";
    journal_legal: "entry 4 (confirm_order) should have position 3" after
        "delete from saga.saga_step where saga_id = SAGA_1 and position = 3";
    journal_legal: "begins at IN_PROGRESS, but the one before it ended at STARTED" after
        "update saga.saga_step set status_before = 'IN_PROGRESS' where saga_id = SAGA_1 and position = 1";
    journal_legal: "begins at STARTED, but the one before it ended at IN_PROGRESS" after
        "update saga.saga_step set status_before = 'STARTED' where saga_id = SAGA_1 and position = 3";
    journal_legal: "goes from STARTED to COMPLETED" after
        "update saga.saga_step set status_after = 'COMPLETED' where saga_id = SAGA_1 and position = 2";
    journal_legal: "goes from COMPLETED to COMPENSATING" after
        "update saga.saga_step set step = 'cancel_timed_out_order' where saga_id = SAGA_4 and position = 5";
    journal_legal: "goes from STARTED to IN_PROGRESS" after
        "update saga.saga_step set status = 'SKIPPED' where saga_id = SAGA_1 and position = 2";
    journal_legal: "is COMPENSATING at version 4, but its journal ends with COMPLETED at 4" after
        "update saga.saga_instance set status = 'COMPENSATING', completed_at = null where saga_id = SAGA_1";
    journal_legal: "is IN_PROGRESS at version 2, but its journal ends with nothing at 0" after
        "delete from saga.saga_step where saga_id = SAGA_5";
    steps_taken_once: "reserve_stock took effect 2 times, but was requested 1 times" after
        "update saga.saga_step set step = 'reserve_stock' where saga_id = SAGA_1 and position = 3";
    steps_taken_once: "release_stock took effect 2 times, but was requested 1 times" after
        "delete from saga.saga_step where saga_id = SAGA_7 and step = 'drive_compensation'";
    claims_took_effect: "process_payment has claimed 1 events, but its journal has 0" after
        "update orders.outbox_published set saga_id = SAGA_5 where event_id = '0000000e-0000-7000-8000-000000000001'";
    outbox_empty: "inventory: ProductCreated.v1" after
        "insert into inventory.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
         headers, payload, created_at, state)
         values (ORDER_1, 'product', 'LAMP', 1, 'ProductCreated.v1', 's', '{}', '{}', now() + interval '1 hour', 'PARKED')";
    outbox_empty: "(2 attempts: full)" after
        "insert into payment.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
         headers, payload, created_at, attempts, last_error)
         values (ORDER_1, 'payment', 'x', 1, 'PaymentProcessed.v1', 's', '{}', '{}', now() - interval '1 second', 2, 'full')";
    aggregate_order: "(number 2) is at 1, its predecessor at 2" after
        "update orders.outbox_published set stream_sequence = 3 - stream_sequence";
    inbox_unique: "payment: payment-process_payment claimed event" after
        "alter table payment.inbox drop constraint inbox_pk cascade;
         insert into payment.inbox select * from payment.inbox";
    dead_letters: "order: confirm_order could not apply PaymentProcessed.v1 after 3 attempts: poison" after
        "update orders.dead_letter set status = 'PENDING'";
};

async fn violations(connection: &mut PgConnection, name: &str) -> Violations {
    let invariant = invariants().iter().find(|i| i.name == name).expect("an invariant of this name");
    check(connection, invariant).await.expect("the invariant's SQL fits the schema")
}

/// `ORDER_n` and `SAGA_n` are the ids of the sound suite.
fn with_ids(planted: &str) -> String {
    (1..=9).fold(planted.to_owned(), |sql, n| {
        sql.replace(&format!("ORDER_{n}"), &format!("'0000000a-0000-7000-8000-00000000000{n}'"))
            .replace(&format!("SAGA_{n}"), &format!("'0000000b-0000-7000-8000-00000000000{n}'"))
    })
}

#[tokio::test]
async fn a_sound_suite_violates_nothing() {
    let database = database().await;
    let mut connection = PgConnection::connect(&database.url_for("auditor")).await.expect("the auditor may connect");
    for invariant in invariants() {
        let found = violations(&mut connection, invariant.name).await;
        assert_eq!(found, Violations::default(), "{}", invariant.name);
    }
}

#[tokio::test]
async fn every_planted_violation_is_found() {
    let database = database().await;
    let mut connection = PgConnection::connect(&database.admin_url()).await.expect("a connection");
    for (name, planted, expected) in PLANTED {
        let mut planting = connection.begin().await.expect("a transaction");
        let sql = format!("set local session_replication_role = replica; {}", with_ids(planted));
        run(&mut planting, sql).await.unwrap_or_else(|error| panic!("{planted}: {error}"));
        let found = violations(&mut planting, name).await;
        planting.rollback().await.expect("rolled back");
        assert!(found.examples.iter().any(|example| example.contains(expected)), "{name}, {planted}: {found:?}");
    }
}

/// A stream that was rolled back twice: the second event of an order was acknowledged after the first rollback.
#[tokio::test]
async fn void_acknowledgements_have_no_order() {
    let database = database().await;
    let mut connection = PgConnection::connect(&database.admin_url()).await.expect("a connection");
    for sql in [
        "update orders.outbox_published set stream_sequence = 3 - stream_sequence",
        "insert into orders.stream_rollback (stream_epoch, last_sequence) values (1, 1)",
    ] {
        run(&mut connection, sql.to_owned()).await.expect("acknowledgements can be void");
    }
    assert_eq!(violations(&mut connection, "aggregate_order").await, Violations::default());
    let sql = "update orders.outbox_published set published_at = clock_timestamp()";
    run(&mut connection, sql.to_owned()).await.expect("acknowledgements can be newer");
    assert_eq!(violations(&mut connection, "aggregate_order").await.count, 1, "both are valid");
}

#[test]
fn every_invariant_has_a_violation_planted_against_it() {
    for invariant in invariants() {
        assert!(PLANTED.iter().any(|(name, ..)| *name == invariant.name), "{}", invariant.name);
    }
}
