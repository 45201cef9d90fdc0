//! What the database itself refuses, and what happens when it goes away.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use bootstrap::CancellationToken;
use contracts::{
    INVENTORY, ORDER, PAYMENT,
    catalogue::{PROJECT_PRODUCT_CREATED, ProductCreated},
};
use messaging::{Batch, Committed, Consumer, Outbox, Severity, StepError, retry_contended, subscribe};
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use suite_tests::{Forged, Stage, Tuning, order_of};
use testkit::{Database, Postgres, eventually};
use uuid::Uuid;

use crate::{Test, messages::product};

#[suite_tests::test(unaudited = "the saga is changed by hand")]
async fn an_illegal_saga_transition_is_refused_by_the_database() -> Test {
    let (stage, suite) = Stage::selling(100, 10).await?;
    suite.confirmed(&[("A", 1)]).await?;
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

/// As on a half-open connection: the statement has no limit, and an hour passes at once.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_unit_of_work_that_is_never_answered_is_an_outage() -> Test {
    let (_stage, inventory) = Stage::alone_with(Tuning { by_hand: true, ..Tuning::default() }, INVENTORY).await?;
    let participant = inventory.app.participant();
    let silent = retry_contended(|| async {
        let mut work = participant.outbox.begin().await?;
        sqlx::query("set local statement_timeout = 0").execute(work.conn()).await?;
        tokio::time::pause();
        // One message to the server, with nothing to wait for before it sleeps.
        sqlx::raw_sql("select pg_sleep(3600)").execute(work.conn()).await?;
        work.commit().await
    })
    .await;
    tokio::time::resume();
    let error = silent.err().context("an hour went by")?;
    ensure!(Severity::of(&error) == Severity::Unavailable, "{error}");
    let work = &participant.pools.work;
    eventually(Duration::from_secs(20), async || work.size() as usize == work.num_idle()).await?;
    ensure!(sqlx::query_scalar::<_, i32>("select 1").fetch_one(work).await? == 1);
    Ok(())
}

/// What is read whole: tables that stay short, and by whom others are.
const READ_WHOLE: [(&str, &str); 14] = [
    ("lease", "select holder"),
    ("lease", "delete from lease where expires_at"),
    ("relay_lease", ""),
    ("outbox", "select l.holder"),
    ("outbox", "with waiting"),
    ("outbox_attempt", "delete"),
    ("delivery_attempt", "delete"),
    ("outbox_action", "delete"),
    ("dead_letter", "with gone as (\n            delete from dead_letter"),
    ("dead_letter", "with waiting"),
    ("delivery_attempt", "with waiting"),
    ("dead_letter_replay", "delete"),
    ("product", "with debt"),
    ("product_view", "delete from product_view"),
];

/// Prepared statements keep their plans from when tables were empty, which is when reading all of one looks best.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn no_statement_reads_a_whole_table_because_it_is_empty() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    let partial = "select indexrelid::regclass::text from pg_index where indpred is not null";
    let partial = sqlx::query_scalar::<_, String>(partial).fetch_all(&stage.pool).await?;
    let partial = partial.iter().filter_map(|name| Some(name.rsplit('.').next()?.to_owned())).collect();
    let (mut unplanned, mut whole) = (BTreeMap::new(), BTreeSet::new());
    for replica in suite.all() {
        let mut work = replica.app.participant().pools.work.acquire().await?;
        sqlx::query("set plan_cache_mode = force_generic_plan").execute(&mut *work).await?;
        for (query, parameters) in checked_queries()? {
            match plan(&mut work, &query, parameters).await {
                Ok(plan) => {
                    unplanned.insert(query.clone(), None);
                    tables_read_whole(&plan, &partial, false, &mut |table| {
                        // A partition's name is its table's with a date.
                        let table = table.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
                        let table = table.trim_end_matches("_default");
                        let known = table.starts_with("pg_")
                            || READ_WHOLE.iter().any(|(t, begin)| *t == table && query.starts_with(begin));
                        if !known {
                            whole.insert((table.to_owned(), query.clone()));
                        }
                    });
                }
                // Another service's table, or another program's query.
                Err(error) if ["42P01", "42501", "42883"].contains(&code(&error).as_str()) => {
                    unplanned.entry(query).or_insert(Some(error.to_string()));
                }
                Err(error) => return Err(anyhow::Error::new(error).context(query)),
            }
        }
    }
    unplanned.retain(|_, error| error.is_some());
    ensure!(unplanned.is_empty(), "{unplanned:#?}");
    ensure!(whole.is_empty(), "{whole:#?}");
    Ok(())
}

/// What has ended is many, and what a filter looks for among it may be at its far end.
#[suite_tests::test(unaudited = "orders and sagas are made up")]
async fn a_list_or_a_summary_looks_at_a_bounded_number_of_rows() -> Test {
    let (stage, order) = Stage::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
    let id = "(lpad(to_hex(n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid";
    let rows = format!(
        "set session_replication_role = replica;
        insert into orders.customer_order
            (order_id, customer_id, status, total_amount, currency, payment_method, saga_id, cancel_reason)
        select {id}, 'c', case n when 1 then 'CANCELLED' else 'CONFIRMED' end, 1, 'USD', 't', {id},
            case n when 1 then 'r' end
        from generate_series(1, 12000) n;
        insert into saga.saga_instance (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step,
            total_steps, deadline, completed_at, initiating_service, initiating_event_id, last_event_id, last_service, version)
        select {id}, 't', {id}, '', '', case n when 1 then 'FAILED' when 2 then 'COMPENSATED' else 'COMPLETED' end, 3, 3,
            now(), now(), 'order', {id}, {id}, 'order', 1
        from generate_series(1, 12000) n"
    );
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut PgConnection::connect(&stage.database.admin_url()).await?).await?;
    for (list, pages) in [
        ("/api/orders?status=CANCELLED", 3),
        ("/api/orders?status=CANCELLED&customer_id=c", 3),
        ("/api/orders?status=CONFIRMED&limit=1", 1),
        ("/api/sagas?status=COMPENSATED", 3),
        ("/api/sagas?status=FAILED", 1),
    ] {
        let (mut path, mut asked) = (list.to_owned(), 1);
        loop {
            let page = order.client.get(&path).await?.expect(200)?;
            let found = page["items"].as_array().context("no items")?.len();
            if found > 0 {
                ensure!((found, asked) == (1, pages), "{list}: {found} on page {asked}");
                break;
            }
            path = format!("{list}&cursor={}", page["next_cursor"].as_str().context("nothing is found")?);
            asked += 1;
        }
    }
    let summary = order.client.get("/api/sagas/summary").await?.expect(200)?;
    let counts = &summary["by_status"];
    ensure!((&counts["FAILED"], &counts["COMPLETED"]) == (&json!(1), &json!(10_000)), "{summary:#}");
    ensure!(counts["COMPENSATED"] == 0, "{summary:#}");
    Ok(())
}

/// While somebody's old transaction lasts, the outbox is long and the planner knows of few rows in it: an index that is
/// read whole for them looks cheaper than looking up each event.
#[suite_tests::test(unaudited = "events are made up")]
async fn a_move_looks_events_up_by_key_among_dead_rows() -> Test {
    let stage = Stage::with(Tuning { by_hand: true, ..Tuning::default() }).await?;
    let mut old = stage.pool.begin().await?;
    sqlx::query("select pg_current_xact_id()").execute(&mut *old).await?;
    let rows = "insert into orders.outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select gen_random_uuid(), 'order', n, 1, 'E', 's', '{}', json_build_object('x', repeat('x', 500))
        from generate_series(1, 20000) n";
    for sql in [rows, "delete from orders.outbox where position > 5", "vacuum analyze orders.outbox"] {
        stage.execute(sql).await?;
    }
    let misleading = "select count(*) from pg_class
        where oid = 'orders.outbox'::regclass and reltuples between 1 and 10 and relpages > 500";
    ensure!(stage.number(misleading).await? == 1, "the planner knows better");
    let order = stage.start(ORDER).await?;
    let mut work = order.app.participant().pools.work.acquire().await?;
    let moves = checked_queries()?
        .into_iter()
        .map(|(query, _)| query)
        .find(|q| q.contains("insert into outbox_published as p"));
    let moves = moves.context("no statement moves published events")?;
    for (mode, many) in [("custom", 124), ("custom", 1_000), ("generic", 124)] {
        let mode = format!("set plan_cache_mode = force_{mode}_plan");
        sqlx::raw_sql(AssertSqlSafe(mode.clone())).execute(&mut *work).await?;
        let ids: Vec<_> = (0..many).map(|n| format!("00000000-0000-0000-0000-{n:012}")).collect();
        let sequences: Vec<_> = (0..many).map(|n| n.to_string()).collect();
        let (ids, sequences) = (ids.join(","), sequences.join(","));
        let values = format!("('r', 1, '3 s', 1, 1, null, '{{{ids}}}', '{{{sequences}}}', 'S')");
        let plan = explained(&mut work, &moves, &values).await?;
        let mut whole = Vec::new();
        tables_read_whole(&plan, &HashSet::new(), false, &mut |table| whole.push(table.to_owned()));
        ensure!(whole == ["relay_lease"], "{mode}, {many}: {whole:?}: {plan:#}");
    }
    Ok(old.rollback().await?)
}

/// The plan that a prepared statement keeps, whatever its parameters.
async fn plan(conn: &mut PgConnection, query: &str, parameters: usize) -> Result<Value, sqlx::Error> {
    let values = match parameters {
        0 => String::new(),
        n => format!("({})", vec!["null"; n].join(", ")),
    };
    explained(conn, query, &values).await
}

async fn explained(conn: &mut PgConnection, query: &str, values: &str) -> Result<Value, sqlx::Error> {
    sqlx::raw_sql("deallocate all").execute(&mut *conn).await?;
    sqlx::raw_sql(AssertSqlSafe(format!("prepare it as {query}"))).execute(&mut *conn).await?;
    let explain = format!("explain (format json) execute it{values}");
    sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(conn).await?.try_get(0)
}

/// All queries that the compiler has checked and that have a plan, with the number of their parameters.
fn checked_queries() -> anyhow::Result<Vec<(String, usize)>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = ["", "shared/messaging", "shared/saga_store"].map(|owner| root.join(owner).join(".sqlx"));
    let mut queries = Vec::new();
    for file in folders.iter().map(std::fs::read_dir).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let text: Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
        let query = text["query"].as_str().context("no query")?;
        let parameters = text["describe"]["parameters"]["Left"].as_array().context("no parameters")?;
        if !query.starts_with("set ") {
            queries.push((query.to_owned(), parameters.len()));
        }
    }
    Ok(queries)
}

/// A scan of the table, or of a whole index, unless it ends where a limit does that is `above`.
fn tables_read_whole(plan: &Value, partial: &HashSet<String>, above: bool, found: &mut dyn FnMut(&str)) {
    match plan {
        Value::Object(node) => {
            let text = |name: &str| node.get(name).and_then(Value::as_str);
            // What is computed once for all of a statement is computed to its end.
            let above = above && text("Parent Relationship") != Some("InitPlan");
            let whole_index = |index| !above && !partial.contains(index) && node.get("Index Cond").is_none();
            let whole = text("Node Type") == Some("Seq Scan") || text("Index Name").is_some_and(whole_index);
            if let (true, Some(table)) = (whole, text("Relation Name")) {
                found(table);
            }
            let above = match text("Node Type") {
                Some("Limit") => true,
                Some("Sort" | "Aggregate" | "Hash" | "Materialize" | "WindowAgg" | "SetOp") => false,
                _ => above,
            };
            node.values().for_each(|value| tables_read_whole(value, partial, above, found));
        }
        Value::Array(nodes) => nodes.iter().for_each(|value| tables_read_whole(value, partial, above, found)),
        _ => {}
    }
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

#[suite_tests::test(unaudited = "nothing is ordered")]
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
    sqlx::query("select status from payment.payment").fetch_all(&mut auditor).await?;
    // Whoever reads a board could ask for them otherwise.
    for tokens in [
        "select * from payment.payment",
        "select method from payment.payment",
        "select payment_method from orders.customer_order",
        "select payload from orders.outbox",
        "select payload from inventory.outbox_published",
        "select payload from inventory.outbox_published_default",
        "select payload from payment.dead_letter",
    ] {
        refused(&mut auditor, tokens.to_owned()).await?;
    }
    refused(&mut auditor, "update payment.payment set status = 'VOIDED'".to_owned()).await
}

async fn refused(conn: &mut sqlx::PgConnection, sql: String) -> Test {
    let refused = sqlx::query(sqlx::AssertSqlSafe(sql.clone())).execute(conn).await;
    let code = refused.as_ref().err().and_then(|e| e.as_database_error()).and_then(|e| e.code());
    ensure!(code.as_deref() == Some("42501"), "{sql}: {refused:?}");
    Ok(())
}

#[suite_tests::test]
async fn postgres_restarted_at_once_under_load_loses_no_order() -> Test {
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

#[suite_tests::test]
async fn a_server_that_lets_nobody_in_is_away() -> Test {
    let server = Postgres::start().await?;
    let mut admin = PgConnection::connect(&server.server().url("postgres")).await?;
    for sql in
        ["create role locked_out nologin", "create database closed", "alter database closed allow_connections false"]
    {
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
    let prepare = async |url| Ok(provision::database::prepare(url).await?);
    let database = Database::from_template_on(&server.server(), "suite", prepare).await?;
    let stage = Stage::on(database, Tuning { by_hand: true, ..Tuning::default() }).await?;
    let order = stage.start(ORDER).await?;
    // As after a change of the password: old sessions go on, and no new one begins.
    stage.execute("alter role order_service nologin").await?;
    let pool = |url: String| {
        let options = PgConnectOptions::from_str(&url)?.options([("search_path", "orders,saga")]);
        anyhow::Ok(PgPoolOptions::new().connect_lazy_with(options))
    };
    let refused = pool(stage.database.url_for("order_service:order_service"))?;
    let subscription = subscribe(&order.app.participant().outbox.on(refused), &PROJECT_PRODUCT_CREATED, take);
    let outages = Arc::new(AtomicU32::new(0));
    let heard = Arc::clone(&outages);
    let consumer = Consumer {
        pool: pool(stage.database.admin_url())?,
        report: Arc::new(move |state| {
            heard.fetch_add(u32::from(state.is_err()), Ordering::Relaxed);
        }),
        ..order.consumer(subscription, INVENTORY)
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    stage.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &product("A"))).await?;
    eventually(Duration::from_secs(20), async || {
        stage.nothing_was_counted().await?;
        ensure!(outages.load(Ordering::Relaxed) >= 5, "the consumer does not pause");
        anyhow::Ok(())
    })
    .await?;
    stage.execute("alter role order_service login").await?;
    let had = "select count(*) from orders.inbox";
    stage.becomes(had, 1).await?;
    stop.cancel();
    running.await?;
    stage.nothing_was_counted().await
}

async fn take(outbox: Outbox, batch: Batch<ProductCreated>) -> Result<Committed, StepError> {
    outbox.claim(batch).await?.0.commit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_newer_schema_is_accepted_when_it_only_adds() -> Test {
    let stage = Stage::new().await?;
    let migrate = async |version: i64, description: &str| {
        let newer = "insert into payment._migration (version, description, success, checksum, execution_time)
            values ($1, $2, true, '', 0)";
        sqlx::query(newer).bind(version).bind(description).execute(&stage.pool).await
    };
    migrate(9001, "loyalty points additive").await?;
    stage.start(PAYMENT).await?;
    provision::database::prepare(stage.database.admin_url()).await?;
    migrate(9002, "drop what was additive contract").await?;
    let refused = stage.start(PAYMENT).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("9002") && !refused.contains("9001"), "{refused}");
    let refused = provision::database::prepare(stage.database.admin_url()).await.err().context("it was accepted")?;
    ensure!(format!("{:#}", anyhow::Error::new(refused)).contains("9002"));
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_service_refuses_unsafe_servers_and_unknown_schemas() -> Test {
    let stage = Stage::new().await?;
    stage.execute("delete from payment._migration").await?;
    let error = stage.start(PAYMENT).await.err().map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(error.contains("provision"), "the message does not say what to do: {error}");
    stage.start(INVENTORY).await?;
    let unsafe_server = sqlx::query_scalar::<_, String>("show fsync").fetch_one(&stage.pool).await?;
    let pools = bootstrap::postgres::check_durability(&stage.pool, false, Duration::ZERO).await;
    ensure!(pools.is_err() == (unsafe_server == "off"), "fsync is {unsafe_server}");
    Ok(())
}

#[suite_tests::test(unaudited = "days are made up")]
async fn housekeeping_makes_new_days_and_drops_only_old_ones() -> Test {
    let stage = Stage::new().await?;
    let setup = "set search_path = payment;
        create table inbox_20200101 (like inbox including all);
        alter table inbox attach partition inbox_20200101
            for values from (uuid_v7_floor('2020-01-01Z')) to (uuid_v7_floor('2020-01-02Z'));
        insert into inbox (event_id, consumer, processed_at)
            select uuid_v7_floor(at), 'c', at
            from unnest(array['2020-01-01 12:00Z', '2019-01-01Z', now() - interval '9 days']) at;
        insert into inbox (event_id, consumer) select uuid_v7_floor(now()), 'c';
        insert into inbox (event_id, consumer) select uuid_v7_floor(now() + interval '8 days'), 'c';";
    stage.execute(setup).await?;
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

#[suite_tests::test]
async fn provisioning_again_is_harmless() -> Test {
    let (stage, suite) = Stage::selling(100, 10).await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    provision::database::prepare(stage.database.admin_url()).await?;
    suite.saga_becomes(&order, "COMPLETED").await?;
    let again = suite.inventory.client.create_product("A", 1, 1).await?;
    ensure!(again.status == 409);
    let _second = stage.start(ORDER).await?;
    stage.audit().await
}
