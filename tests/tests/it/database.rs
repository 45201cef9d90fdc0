//! What the database itself refuses, and what happens when it goes away.

use std::time::Duration;

use anyhow::ensure;
use contracts::{INVENTORY, ORDER, PAYMENT};
use serde_json::json;
use sqlx::Connection;
use suite_tests::{Stage, Tuning, order_of};
use testkit::{Database, Postgres, eventually};

use crate::Test;

#[tokio::test]
async fn an_illegal_saga_transition_is_refused_by_the_database() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    suite.sell("A", 100, 10).await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&order, "COMPLETED").await?;
    for (set, legal) in [
        ("status = 'IN_PROGRESS', completed_at = null", false),
        ("status = 'COMPENSATED'", false),
        ("status = 'FAILED'", false),
        ("status = 'TIMED_OUT', completed_at = null", false),
        ("status = 'COMPENSATING', completed_at = null", false),
        ("status = 'COMPENSATING', completed_at = null, failed_at_step = 'cancel_order_on_request'", true),
    ] {
        let sql = format!("update saga.saga_instance set {set}");
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&stage.pool).await;
        ensure!(done.is_ok() == legal, "{set}: {done:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_role_that_reads_a_foreign_schema_is_refused() -> Test {
    let stage = Stage::new().await?;
    let tables = [
        ("order_service", ["inventory.product", "payment.payment"]),
        ("inventory_service", ["orders.customer_order", "payment.payment"]),
        ("payment_service", ["orders.customer_order", "inventory.product"]),
    ];
    for (role, foreign) in tables {
        let url = stage.database.url_for(&format!("{role}:{role}"));
        let mut conn = sqlx::PgConnection::connect(&url).await?;
        for table in foreign {
            refused(&mut conn, format!("select * from {table}")).await?;
        }
        for ddl in [
            "create table t ()",
            "drop table saga.saga_step",
            "delete from saga.saga_instance",
            "truncate saga.saga_step",
            "update saga.saga_step set step = ''",
        ] {
            refused(&mut conn, ddl.to_owned()).await?;
        }
    }
    let mut auditor = sqlx::PgConnection::connect(&stage.database.url_for("auditor:auditor")).await?;
    sqlx::query("select * from payment.payment").fetch_all(&mut auditor).await?;
    refused(&mut auditor, "update payment.payment set status = 'VOIDED'".to_owned()).await
}

async fn refused(conn: &mut sqlx::PgConnection, sql: String) -> Test {
    let refused = sqlx::query(sqlx::AssertSqlSafe(sql.clone())).execute(conn).await;
    let code = refused.as_ref().err().and_then(|e| e.as_database_error()).and_then(|e| e.code());
    ensure!(code.as_deref() == Some("42501"), "{sql}: {refused:?}");
    Ok(())
}

#[tokio::test]
async fn postgres_stopped_at_once_and_started_again_under_load_loses_no_order() -> Test {
    let mut server = Postgres::with_settings(&[("fsync", "on"), ("synchronous_commit", "on")]).await?;
    let prepare = async |url| Ok(provision::database::prepare(url).await?);
    let database = Database::from_template_on(&server.server(), "suite", prepare).await?;
    let stage = Stage::on(database, Tuning::default()).await?;
    let suite = stage.dancers().await?;
    suite.sell("A", 100, 100_000).await?;
    let client = suite.order.client.clone();
    let load = tokio::spawn(async move {
        let mut accepted = 0;
        for n in 0..150 {
            let placed = client.insist(&format!("k-{n}"), &order_of(&[("A", 1)], "tok_visa")).await;
            accepted += i32::from(placed.is_ok());
        }
        accepted
    });
    for placed in [30, 80] {
        let enough =
            async || stage.number("select count(*) from orders.customer_order").await.is_ok_and(|n| n >= placed);
        eventually(Duration::from_secs(20), enough).await?;
        server.stop_immediate().await?;
        let refused = suite.order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?;
        ensure!(refused.status == 503 && refused.header("retry-after").is_some(), "{refused:?}");
        server.start_again().await?;
    }
    ensure!(load.await? == 150, "not every order was accepted in the end");
    stage.audit().await?;
    stage.nothing_was_counted().await?;
    ensure!(stage.number("select count(*) from orders.customer_order where status = 'CONFIRMED'").await? == 150);
    Ok(())
}

#[tokio::test]
async fn a_service_refuses_an_unsafe_server_and_a_schema_that_it_does_not_know() -> Test {
    let stage = Stage::new().await?;
    sqlx::query("delete from payment._migration").execute(&stage.pool).await?;
    let error = stage.start(PAYMENT).await.err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(error.contains("provision"), "the message does not say what to do: {error}");
    stage.start(INVENTORY).await?;
    let unsafe_server = sqlx::query_scalar::<_, String>("show fsync").fetch_one(&stage.pool).await?;
    let pools = bootstrap::postgres::check_durability(&stage.pool, false).await;
    ensure!(pools.is_err() == (unsafe_server == "off"), "fsync is {unsafe_server}");
    Ok(())
}

#[tokio::test]
async fn housekeeping_creates_days_ahead_drops_old_ones_and_deletes_nothing_younger() -> Test {
    let stage = Stage::new().await?;
    let setup = "set search_path = payment;
        create table inbox_20200101 (like inbox including all);
        alter table inbox attach partition inbox_20200101
            for values from (uuid_v7_floor('2020-01-01Z')) to (uuid_v7_floor('2020-01-02Z'));
        insert into inbox (event_id, consumer)
            select uuid_v7_floor(at), 'c' from unnest(array['2020-01-01 12:00Z', '2019-01-01Z']::timestamptz[]) at;
        insert into inbox (event_id, consumer) select uuid_v7_floor(now() - interval '9 days'), 'c';
        insert into inbox (event_id, consumer) select uuid_v7_floor(now()), 'c';
        insert into inbox (event_id, consumer) select uuid_v7_floor(now() + interval '8 days'), 'c';";
    sqlx::raw_sql(setup).execute(&stage.pool).await?;
    let mut service = sqlx::PgConnection::connect(&stage.database.url_for("payment_service:payment_service")).await?;
    sqlx::query("set search_path = payment, saga").execute(&mut service).await?;
    let settings = messaging::MessagingArgs::default();
    let tidied = messaging::housekeeping::tidy(&mut service, &settings).await?;
    ensure!(tidied.partitions_dropped == 1, "{tidied:?}");
    ensure!(
        stage.number("select count(*) from payment.inbox").await? == 3,
        "the 9 days old one is within its retention"
    );
    let ahead: i32 = sqlx::query_scalar("select ensure_partitions(9)").fetch_one(&mut service).await?;
    ensure!(ahead == 4, "two days more of two tables, not {ahead}");
    ensure!(stage.number("select count(*) from payment.inbox_default").await? == 1, "its day has a partition now");
    ensure!(messaging::housekeeping::tidy(&mut service, &settings).await?.partitions_dropped == 0);
    Ok(())
}

#[tokio::test]
async fn provisioning_again_is_harmless() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    suite.sell("A", 100, 10).await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    provision::database::prepare(stage.database.admin_url()).await?;
    suite.saga_becomes(&order, "COMPLETED").await?;
    let again = suite
        .inventory
        .client
        .post(
            "/api/products",
            &json!({"sku": "A", "name": "a", "initial_quantity": 1, "price": {"amount": 1, "currency": "USD"}}),
        )
        .await?;
    ensure!(again.status == 409);
    let _second = stage.start(ORDER).await?;
    stage.audit().await
}
