//! What the database refuses, and what happens when it is unreachable.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bootstrap::CancellationToken;
use contracts::catalogue::{PROJECT_PRODUCT_CREATED, ProductCreated};
use messaging::{Batch, Committed, Consumer, Outbox, Severity, StepError, retry_contended, subscribe};
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::Postgres;

use crate::{messages::product, prelude::*};

#[suite_tests::test(unaudited = "the saga is changed by hand")]
async fn an_illegal_saga_transition_is_refused_by_the_database() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    for (set, legal) in [
        ("status = 'IN_PROGRESS', completed_at = null", false),
        ("status = 'COMPENSATED'", false),
        ("status = 'FAILED'", false),
        ("status = 'TIMED_OUT', completed_at = null", false),
        ("status = 'COMPENSATING', completed_at = null", false),
        ("status = 'COMPENSATING', completed_at = null, failed_at_step = 'cancel_order_on_request'", true),
    ] {
        let sql = format!("update saga.saga_instance set {set}");
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&suite.pool).await;
        ensure!(done.is_ok() == legal, "{set}: {done:?}");
    }
    Ok(())
}

/// As on a half-open connection: the statement has no time limit, and the test's clock jumps an hour.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_unanswered_unit_of_work_is_an_outage() -> Test {
    let (_suite, inventory) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, INVENTORY).await?;
    let participant = inventory.app.participant();
    let silent = retry_contended(|| async {
        let mut work = participant.outbox.begin().await?;
        sqlx::query("set local statement_timeout = 0").execute(work.conn()).await?;
        tokio::time::pause();
        // One message to the server, so that it sleeps without waiting for the client.
        sqlx::raw_sql("select pg_sleep(3600)").execute(work.conn()).await?;
        work.commit().await
    })
    .await;
    tokio::time::resume();
    let error = silent.err().context("an hour went by")?;
    ensure!(Severity::of(&error) == Severity::Unavailable, "{error}");
    let work = &participant.pools.work;
    eventually(async || work.size() as usize == work.num_idle()).await?;
    ensure!(sqlx::query_scalar::<_, i32>("select 1").fetch_one(work).await? == 1);
    Ok(())
}

pub(crate) fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

#[suite_tests::test]
async fn postgres_restarted_at_once_under_load_loses_no_order() -> Test {
    let mut server = Postgres::with_settings(&[("fsync", "on"), ("synchronous_commit", "on")]).await?;
    let suite = TestSuite::with_server(&server, Tuning::default()).await?;
    let participants = suite.participants().await?;
    participants.sell("A", 100, 100_000).await?;
    let client = participants.order.client.clone();
    let load = tokio::spawn(async move { client.order_many_until_accepted(150).await });
    for enough in [30, 80] {
        let placed = "select count(*) from orders.customer_order";
        eventually(async || suite.number(placed).await.is_ok_and(|placed| placed >= enough)).await?;
        server.stop_immediate().await?;
        let refused = participants.order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?;
        ensure!(refused.status == 503 && refused.header("retry-after").is_some(), "{refused:?}");
        server.start_again().await?;
    }
    load.await?.context("not every order was accepted in the end")?;
    suite.audit().await?;
    suite.nothing_was_counted().await?;
    ensure!(suite.number(CONFIRMED).await? == 150);
    Ok(())
}

#[suite_tests::test]
async fn a_server_that_refuses_all_logins_is_an_outage() -> Test {
    let server = Postgres::start().await?;
    let mut admin = PgConnection::connect(&server.server().url("postgres")).await?;
    for sql in ["create role locked_out nologin", "create database closed allow_connections false"] {
        sqlx::query(sql).execute(&mut admin).await?;
    }
    let server = server.server();
    for (url, expected) in [
        (server.url_for("locked_out", "postgres"), "28000"),
        (server.url("no_such_database"), "3D000"),
        (server.url("closed"), "55000"),
    ] {
        let refused = PgConnection::connect(&url).await.err().context("it was let in")?;
        ensure!(code(&refused) == expected, "{refused}");
        ensure!(Severity::of(&refused) == Severity::Unavailable, "{expected} counts against an event");
        let answer = bootstrap::Problem::from(refused);
        ensure!(answer.status.as_u16() == 503 && answer.retry_after.is_some(), "{expected}: {answer:?}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = "the event is made up")]
async fn a_login_that_is_refused_costs_no_attempt() -> Test {
    let server = Postgres::start().await?;
    let suite = TestSuite::with_server(&server, Tuning { by_hand: true, ..Tuning::default() }).await?;
    let order = suite.start(ORDER).await?;
    // As after a change of the password: open sessions go on, and no new one opens.
    suite.execute("alter role order_service nologin").await?;
    let pool = |url: String| {
        let options = PgConnectOptions::from_str(&url)?.options([("search_path", "orders,saga")]);
        anyhow::Ok(PgPoolOptions::new().connect_lazy_with(options))
    };
    let refused = pool(suite.database.url_for("order_service:order_service"))?;
    let subscription = subscribe(&order.app.participant().outbox.on(refused), &PROJECT_PRODUCT_CREATED, take);
    let outages = Arc::new(AtomicU32::new(0));
    let heard = Arc::clone(&outages);
    let consumer = Consumer {
        pool: pool(suite.database.admin_url())?,
        report: Arc::new(move |state| {
            heard.fetch_add(u32::from(state.is_err()), Ordering::Relaxed);
        }),
        ..order.consumer(subscription, INVENTORY)
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    suite.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &product("A"))).await?;
    eventually(async || {
        suite.nothing_was_counted().await?;
        ensure!(outages.load(Ordering::Relaxed) >= 5, "the consumer does not pause");
        anyhow::Ok(())
    })
    .await?;
    suite.execute("alter role order_service login").await?;
    suite.becomes("select count(*) from orders.inbox", 1).await?;
    stop.cancel();
    running.await?;
    suite.nothing_was_counted().await
}

async fn take(outbox: Outbox, batch: Batch<ProductCreated>) -> Result<Committed, StepError> {
    outbox.claim(batch).await?.0.commit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_newer_schema_is_accepted_when_it_only_adds() -> Test {
    let suite = TestSuite::new().await?;
    let migrate = async |version: i64, description: &str| {
        let newer = "insert into payment._migration (version, description, success, checksum, execution_time)
            values ($1, $2, true, '', 0)";
        sqlx::query(newer).bind(version).bind(description).execute(&suite.pool).await
    };
    migrate(9001, "loyalty points additive").await?;
    suite.start(PAYMENT).await?;
    provision::database::prepare(suite.database.admin_url()).await?;
    migrate(9002, "drop what was additive contract").await?;
    let refused = suite.start(PAYMENT).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("9002") && !refused.contains("9001"), "{refused}");
    let refused = provision::database::prepare(suite.database.admin_url()).await.err().context("it was accepted")?;
    ensure!(format!("{:#}", anyhow::Error::new(refused)).contains("9002"));
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_service_refuses_unsafe_servers_and_unknown_schemas() -> Test {
    let suite = TestSuite::new().await?;
    suite.execute("delete from payment._migration").await?;
    let error = suite.start(PAYMENT).await.err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(error.contains("provision"), "the message names no remedy: {error}");
    suite.start(INVENTORY).await?;
    let unsafe_server = sqlx::query_scalar::<_, String>("show fsync").fetch_one(&suite.pool).await?;
    let pools = bootstrap::postgres::check_durability(&suite.pool, false, Duration::ZERO).await;
    ensure!(pools.is_err() == (unsafe_server == "off"), "fsync is {unsafe_server}");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn commits_have_to_wait_for_a_synchronous_standby() -> Test {
    let durable = [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_standby_names", "a")];
    let server = Postgres::with_settings(&durable).await?;
    let options = PgConnectOptions::from_str(&server.server().url("postgres"))?;
    for (value, refused) in [("on", false), ("local", true), ("remote_apply", false)] {
        let pool = PgPoolOptions::new().connect_with(options.clone().options([("synchronous_commit", value)])).await?;
        let checked = bootstrap::postgres::check_durability(&pool, false, Duration::ZERO).await;
        ensure!(checked.is_err() == refused, "{value}: {checked:?}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = "days are made up")]
async fn housekeeping_adds_partitions_and_drops_only_old_ones() -> Test {
    let suite = TestSuite::new().await?;
    let setup = "set search_path = payment;
        create table inbox_20200101 (like inbox including all);
        alter table inbox attach partition inbox_20200101
            for values from (uuid_v7_floor('2020-01-01Z')) to (uuid_v7_floor('2020-01-02Z'));
        insert into inbox (event_id, consumer, processed_at)
            select uuid_v7_floor(at), 'c', at
            from unnest(array['2020-01-01 12:00Z', '2019-01-01Z', now() - interval '9 days']) at;
        insert into inbox (event_id, consumer) select uuid_v7_floor(now()), 'c';
        insert into inbox (event_id, consumer) select uuid_v7_floor(now() + interval '8 days'), 'c';";
    suite.execute(setup).await?;
    let mut service = PgConnection::connect(&suite.database.url_for("payment_service:payment_service")).await?;
    sqlx::query("set search_path = payment, saga").execute(&mut service).await?;
    // Parked, and published four days after its day was set aside.
    suite
        .execute(
            "insert into payment.outbox_published (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
                subject, headers, payload, created_at, published_at, stream, stream_sequence, stream_epoch, relay)
            select payment.uuid_v7_floor(now() - interval '6 days'), 1, 'a', 'a', 1, 'e', 's', '{}', '{}', now(),
                now() - interval '2 days', 'S', 1, 1, 'r'",
        )
        .await?;
    let settings = messaging::MessagingArgs::default();
    let another = "insert into payment.lease values ('housekeeping round', 'another', now() + interval '1 minute')";
    suite.execute(another).await?;
    ensure!(messaging::housekeeping::run_round(&mut service, &settings, false).await?.is_none(), "two rounds at once");
    suite.execute("delete from payment.lease").await?;
    let rehearsed = messaging::housekeeping::run_round(&mut service, &settings, true).await?;
    let still = suite.number("select count(*) from payment.outbox_published_default").await?;
    ensure!(still == 1, "a rehearsal has changed something");
    let round = run_housekeeping(&mut service, &settings).await?;
    ensure!(Some(round) == rehearsed && round.partitions_dropped == 1 && round.late_events_archived == 1, "{round:?}");
    let kept = suite.number("select count(*) from payment.inbox").await?;
    ensure!(kept == 3, "the 9 days old one is within its retention");
    let ahead: i32 = sqlx::query_scalar("select ensure_partitions(9)").fetch_one(&mut service).await?;
    ensure!(ahead == 4, "two days more of two tables, not {ahead}");
    ensure!(suite.number("select count(*) from payment.inbox_default").await? == 1, "its day has a partition now");
    ensure!(run_housekeeping(&mut service, &settings).await?.partitions_dropped == 0);
    Ok(())
}

#[suite_tests::test]
async fn provisioning_again_is_harmless() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    provision::database::prepare(suite.database.admin_url()).await?;
    participants.saga_becomes(&order, "COMPLETED").await?;
    ensure!(participants.inventory.client.create_product("A", 1, 1).await?.status == 409);
    let _second = suite.start(ORDER).await?;
    suite.audit().await
}
