//! Each invariant passes the sound suite and finds what is planted against it.

use console::audit::{Violations, check, invariants};
use sqlx::{Connection, PgConnection};

use crate::fixture::{database, run};

/// What is planted, against which invariant, and what it says then.
const PLANTED: &[(&str, &str, &str)] = &[
    (
        "stock_conserved",
        "alter table inventory.product drop constraint product_conserved;
         update inventory.product set available = 8 where sku = 'LAMP'",
        "LAMP: 8 available + 3 reserved, but 10 supplied",
    ),
    (
        "stock_conserved",
        "update inventory.reservation_line set status = 'RELEASED' where sku = 'DESK' and order_id::text like '%1'",
        "DESK: 6 reserved, but the reservations hold 4",
    ),
    (
        "stock_conserved",
        "insert into inventory.reservation_line values (ORDER_1, 'GHOST', 1)",
        "GHOST: 0 reserved, but the reservations hold 1",
    ),
    (
        "money_conserved",
        "update payment.payment set amount = 2999 where order_id = ORDER_1",
        "USD: 5999 captured and kept, but 6000 confirmed",
    ),
    (
        "money_conserved",
        "update payment.payment set currency = 'EUR' where order_id = ORDER_1",
        "EUR: 3000 captured and kept, but 0 confirmed",
    ),
    ("catalogue_agrees", "update orders.product_view set price = 999 where sku = 'LAMP'", "order knows it as Lamp for 999"),
    ("catalogue_agrees", "delete from orders.product_view where sku = 'LAMP'", "order knows it as nothing for"),
    ("catalogue_agrees", "delete from inventory.product where sku = 'LAMP'", "and inventory as nothing for"),
    ("order_total", "update orders.order_line set quantity = 3 where order_id = ORDER_1 and line = 1", "2 lines worth 5000"),
    ("order_total", "delete from orders.order_line where order_id = ORDER_1", "0 lines worth 0"),
    (
        "order_terminal",
        "update orders.customer_order set status = 'PENDING' where order_id = ORDER_1",
        "is PENDING, but its saga is COMPLETED",
    ),
    ("order_terminal", "delete from saga.saga_instance where saga_id = SAGA_5", "is PENDING, but its saga is missing"),
    (
        "order_agrees_with_saga",
        "update orders.customer_order set status = 'CONFIRMED', cancel_reason = null where order_id = ORDER_2",
        "is CONFIRMED, but its saga is COMPENSATED",
    ),
    (
        "order_agrees_with_saga",
        "update saga.saga_instance set status = 'COMPENSATING', completed_at = null, receipts_due = '{payment}'
         where saga_id = SAGA_2",
        "is CANCELLED, but its saga is COMPENSATING (unsettled: due from payment)",
    ),
    ("order_agrees_with_saga", "delete from saga.saga_instance where saga_id = SAGA_1", "but its saga is missing"),
    (
        "order_agrees_with_saga",
        "update saga.saga_instance set business_key = SAGA_1 where saga_id = SAGA_1",
        "which belongs to",
    ),
    (
        "order_agrees_with_reservation",
        "delete from inventory.reservation where order_id = ORDER_1",
        "is CONFIRMED, but its reservation is missing",
    ),
    (
        "order_agrees_with_reservation",
        "update inventory.reservation set status = 'RESERVED' where order_id = ORDER_3",
        "is CANCELLED, but its reservation is RESERVED",
    ),
    (
        "order_agrees_with_reservation",
        "update inventory.reservation set status = 'TOMBSTONE' where order_id = ORDER_5",
        "is PENDING, but its reservation is TOMBSTONE",
    ),
    (
        "order_agrees_with_reservation",
        "update inventory.reservation_line set quantity = 9 where order_id = ORDER_1 and sku = 'LAMP'",
        "1 x LAMP ordered, but the reservation is for 9",
    ),
    (
        "order_agrees_with_reservation",
        "insert into inventory.reservation_line values (ORDER_2, 'LAMP', 1)",
        "0 x LAMP ordered, but the reservation is for 1",
    ),
    (
        "order_agrees_with_reservation",
        "update inventory.reservation_line set status = 'RELEASED' where order_id = ORDER_1",
        "the reservation is RESERVED, but its line",
    ),
    (
        "order_agrees_with_reservation",
        "update inventory.reservation set saga_id = SAGA_2 where order_id = ORDER_1",
        "but its reservation 0000000b",
    ),
    (
        "order_agrees_with_payment",
        "update payment.payment set status = 'PENDING' where order_id = ORDER_1",
        "is CONFIRMED, but its payment is PENDING",
    ),
    (
        "order_agrees_with_payment",
        "delete from payment.payment where order_id = ORDER_2",
        "is CANCELLED, but its payment is missing",
    ),
    (
        "order_agrees_with_payment",
        "update payment.payment set status = 'VOIDED' where order_id = ORDER_5",
        "is PENDING, but its payment is VOIDED",
    ),
    (
        "order_agrees_with_payment",
        "update payment.payment set amount = 2999 where order_id = ORDER_4",
        "is worth 3000 USD, but its payment 2999 USD",
    ),
    (
        "order_agrees_with_payment",
        "update payment.payment set saga_id = SAGA_2 where order_id = ORDER_1",
        "but its payment 0000000b",
    ),
    (
        "one_charge_per_order",
        "alter table payment.payment drop constraint payment_once_per_order;
         update payment.payment set order_id = ORDER_1 where order_id = ORDER_6",
        "has 2 payments",
    ),
    (
        "one_charge_per_order",
        "update payment.payment set gateway_reference = 'charge-1' where order_id = ORDER_6",
        "charge charge-1 stands for 2 payments",
    ),
    (
        "nothing_held_on_cancelled",
        "update inventory.reservation_line set status = 'RESERVED' where order_id = ORDER_3 and sku = 'DESK'",
        "is CANCELLED, but holds 2 x DESK",
    ),
    (
        "nothing_held_on_cancelled",
        "update payment.payment set status = 'CAPTURED', refunded_at = null where order_id = ORDER_4",
        "is CANCELLED, but 3000 USD are captured",
    ),
    (
        "no_orphans",
        "update inventory.reservation set status = 'REFUSED' where order_id::text like '%9'",
        "(REFUSED) belongs to no order",
    ),
    (
        "no_orphans",
        "update payment.payment set status = 'PENDING' where order_id::text like '%9'",
        "(PENDING) belongs to no order",
    ),
    ("no_orphans", "delete from orders.customer_order where order_id = ORDER_2", "(COMPENSATED) belongs to no order"),
    (
        "no_saga_stuck",
        "update saga.saga_instance set status = 'FAILED', failure_reason = 'no receipt', receipts_due = '{inventory}'
         where saga_id = SAGA_2",
        "is FAILED: no receipt, due from inventory",
    ),
    (
        "no_saga_stuck",
        "update saga.saga_instance set deadline = now() - interval '2 minutes' where saga_id = SAGA_5",
        "is IN_PROGRESS, overdue since",
    ),
    (
        "journal_legal",
        "delete from saga.saga_step where saga_id = SAGA_1 and position = 3",
        "entry 4 (confirm_order) should have position 3",
    ),
    (
        "journal_legal",
        "update saga.saga_step set status_before = 'IN_PROGRESS' where saga_id = SAGA_1 and position = 1",
        "begins at IN_PROGRESS, but the one before it ended at STARTED",
    ),
    (
        "journal_legal",
        "update saga.saga_step set status_before = 'STARTED' where saga_id = SAGA_1 and position = 3",
        "begins at STARTED, but the one before it ended at IN_PROGRESS",
    ),
    (
        "journal_legal",
        "update saga.saga_step set status_after = 'COMPLETED' where saga_id = SAGA_1 and position = 2",
        "goes from STARTED to COMPLETED",
    ),
    (
        "journal_legal",
        "update saga.saga_step set step = 'cancel_timed_out_order' where saga_id = SAGA_4 and position = 5",
        "goes from COMPLETED to COMPENSATING",
    ),
    (
        "journal_legal",
        "update saga.saga_step set status = 'SKIPPED' where saga_id = SAGA_1 and position = 2",
        "goes from STARTED to IN_PROGRESS",
    ),
    (
        "journal_legal",
        "update saga.saga_instance set status = 'COMPENSATING', completed_at = null where saga_id = SAGA_1",
        "is COMPENSATING at version 4, but its journal ends with COMPLETED at 4",
    ),
    (
        "journal_legal",
        "delete from saga.saga_step where saga_id = SAGA_5",
        "is IN_PROGRESS at version 2, but its journal ends with nothing at 0",
    ),
    (
        "steps_taken_once",
        "update saga.saga_step set step = 'reserve_stock' where saga_id = SAGA_1 and position = 3",
        "reserve_stock took effect 2 times, but was asked 1 times",
    ),
    (
        "steps_taken_once",
        "delete from saga.saga_step where saga_id = SAGA_7 and step = 'drive_compensation'",
        "release_stock took effect 2 times, but was asked 1 times",
    ),
    (
        "claims_took_effect",
        "update orders.outbox_published set saga_id = SAGA_5 where event_id = '0000000e-0000-7000-8000-000000000001'",
        "process_payment has had 1 events, but its journal knows of 0",
    ),
    (
        "outbox_empty",
        "insert into inventory.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
             headers, payload, created_at, state)
         values (ORDER_1, 'product', 'LAMP', 1, 'ProductCreated.v1', 's', '{}', '{}', now() + interval '1 hour', 'PARKED')",
        "inventory: ProductCreated.v1",
    ),
    (
        "outbox_empty",
        "insert into payment.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
             headers, payload, created_at, attempts, last_error)
         values (ORDER_1, 'payment', 'x', 1, 'PaymentProcessed.v1', 's', '{}', '{}', now() - interval '1 second', 2, 'full')",
        "(2 attempts: full)",
    ),
    (
        "aggregate_order",
        "update orders.outbox_published set stream_sequence = 3 - stream_sequence",
        "(number 2) is at 1, its predecessor at 2",
    ),
    (
        "inbox_unique",
        "alter table payment.inbox drop constraint inbox_pk cascade;
         insert into payment.inbox select * from payment.inbox",
        "payment: payment-process_payment had event",
    ),
    (
        "dead_letters",
        "update orders.dead_letter set status = 'PENDING'",
        "order: confirm_order could not apply PaymentProcessed.v1 after 3 attempts: poison",
    ),
];

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
    for (name, planted, said) in PLANTED {
        let mut planting = connection.begin().await.expect("a transaction");
        let sql = format!("set local session_replication_role = replica; {}", with_ids(planted));
        run(&mut planting, sql).await.unwrap_or_else(|error| panic!("{planted}: {error}"));
        let found = violations(&mut planting, name).await;
        planting.rollback().await.expect("rolled back");
        assert!(found.examples.iter().any(|example| example.contains(said)), "{name}, {planted}: {found:?}");
    }
}

/// A stream that came back older twice: the second event of an order had its receipt after the first time.
#[tokio::test]
async fn void_receipts_are_in_no_order() {
    let database = database().await;
    let mut connection = PgConnection::connect(&database.admin_url()).await.expect("a connection");
    for sql in [
        "update orders.outbox_published set stream_sequence = 3 - stream_sequence",
        "insert into orders.stream_rollback (stream_epoch, last_sequence) values (1, 1)",
    ] {
        run(&mut connection, sql.to_owned()).await.expect("receipts can be void");
    }
    assert_eq!(violations(&mut connection, "aggregate_order").await, Violations::default());
    let sql = "update orders.outbox_published set published_at = clock_timestamp()";
    run(&mut connection, sql.to_owned()).await.expect("receipts can be newer");
    assert_eq!(violations(&mut connection, "aggregate_order").await.count, 1, "both are valid");
}

#[test]
fn every_invariant_has_a_violation_planted_against_it() {
    for invariant in invariants() {
        assert!(PLANTED.iter().any(|(name, ..)| *name == invariant.name), "{}", invariant.name);
    }
}
