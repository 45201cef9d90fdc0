//! The plans of PostgreSQL for the suite's statements: by index, whatever the tables hold.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{database::code, prelude::*};

/// Tables that are read in full because they stay short, and the statements that read others in full.
const READ_WHOLE: [(&str, &str); 16] = [
    ("lease", "select holder"),
    ("lease", "delete from lease where ctid"),
    ("relay_lease", ""),
    ("outbox", "select l.holder"),
    ("outbox", "with waiting"),
    ("outbox_attempt", "delete"),
    ("delivery_attempt", "delete"),
    ("outbox_action", "delete"),
    ("dead_letter", "with gone as (\n            delete from dead_letter"),
    ("dead_letter", "with waiting"),
    ("dead_letter", "with found as materialized (\n            select dead_letter_id"),
    ("delivery_attempt", "with waiting"),
    ("dead_letter_replay", "delete"),
    ("frozen_set", "delete"),
    ("product", "with debt"),
    ("product_view", "delete from product_view"),
];

/// Prepared statements keep plans made while tables were empty, when a sequential scan looks cheapest.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn no_statement_keeps_the_plan_of_an_empty_table() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let partial = "select indexrelid::regclass::text from pg_index where indpred is not null";
    let partial = sqlx::query_scalar::<_, String>(partial).fetch_all(&suite.pool).await?;
    let partial = partial.iter().filter_map(|name| Some(name.rsplit('.').next()?.to_owned())).collect();
    let (mut unplanned, mut whole) = (BTreeMap::new(), BTreeSet::new());
    for replica in participants.all() {
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

/// Most rows have ended, and those that a filter looks for may be the last of them.
#[suite_tests::test(unaudited = "orders and sagas are made up")]
async fn a_list_or_a_summary_reads_a_bounded_number_of_rows() -> Test {
    let (suite, order) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
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
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut PgConnection::connect(&suite.database.admin_url()).await?).await?;
    for (list, pages) in [
        ("/api/orders?status=CANCELLED", 3),
        ("/api/orders?status=CANCELLED&customer_id=c", 3),
        ("/api/orders?status=CONFIRMED&limit=1", 1),
        ("/api/sagas?status=COMPENSATED", 3),
        ("/api/sagas?status=FAILED", 1),
    ] {
        let (mut path, mut page_number) = (list.to_owned(), 1);
        loop {
            let page = order.client.get(&path).await?.expect(200)?;
            let found = page["items"].as_array().context("no items")?.len();
            if found > 0 {
                ensure!((found, page_number) == (1, pages), "{list}: {found} on page {page_number}");
                break;
            }
            path = format!("{list}&cursor={}", page["next_cursor"].as_str().context("the list is empty")?);
            page_number += 1;
        }
    }
    let summary = order.client.get("/api/sagas/summary").await?.expect(200)?;
    let counts = &summary["by_status"];
    ensure!((&counts["FAILED"], &counts["COMPLETED"]) == (&json!(1), &json!(10_000)), "{summary:#}");
    ensure!(counts["COMPENSATED"] == 0, "{summary:#}");
    Ok(())
}

/// A caller chooses the ids, so some have many sagas, and most have one.
#[suite_tests::test(unaudited = "sagas are made up")]
async fn sagas_of_a_correlation_id_are_read_by_its_index() -> Test {
    let (suite, order) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
    let id = "(lpad(to_hex(n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid";
    let rows = format!(
        "insert into saga.saga_instance (saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step,
            total_steps, deadline, initiating_service, initiating_event_id, last_event_id, last_service, version)
        select {id}, 't', {id}, case when n <= 3 then 'rare' when n <= 4000 then 'often' else n::text end, '', 'STARTED', 1,
            3, now(), 'order', {id}, {id}, 'order', 1
        from generate_series(1, 20000) n;
        analyze saga.saga_instance"
    );
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut PgConnection::connect(&suite.database.admin_url()).await?).await?;
    let mut work = order.app.participant().pools.work.acquire().await?;
    let query =
        checked_queries()?.into_iter().map(|(query, _)| query).find(|q| q.contains("where correlation_id = $4"));
    let query = query.context("no statement reads sagas by their correlation id")?;
    for (mode, correlation_id) in [("custom", "rare"), ("generic", "rare"), ("custom", "17000")] {
        let mode = format!("set plan_cache_mode = force_{mode}_plan");
        sqlx::raw_sql(AssertSqlSafe(mode.clone())).execute(&mut *work).await?;
        let values = format!("(null, null, null, '{correlation_id}', '{}', 21)", Uuid::max());
        let plan = explained(&mut work, &query, &values).await?;
        ensure!(plan.to_string().contains("saga_instance_correlation"), "{mode}, {correlation_id}: {plan:#}");
    }
    for (list, found) in [("rare", 3), ("rare&status=COMPLETED", 0), ("often&limit=200", 200), ("none", 0)] {
        let items = order.client.items(&format!("/api/sagas?correlation_id={list}")).await?;
        ensure!(items.len() == found, "{list}: {items:#?}");
    }
    Ok(())
}

/// While an old transaction lasts, the outbox is long and the planner expects few live rows: a full scan of an index looks
/// cheaper than a lookup of each event.
#[suite_tests::test(unaudited = "events are made up")]
async fn marking_events_uses_the_key_despite_dead_rows() -> Test {
    let suite = TestSuite::with(Tuning { by_hand: true, ..Tuning::default() }).await?;
    let mut old = suite.pool.begin().await?;
    sqlx::query("select pg_current_xact_id()").execute(&mut *old).await?;
    let rows = "insert into orders.outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select gen_random_uuid(), 'order', n, 1, 'E', 's', '{}', json_build_object('x', repeat('x', 500))
        from generate_series(1, 20000) n";
    for sql in [rows, "delete from orders.outbox where position > 5", "vacuum analyze orders.outbox"] {
        suite.execute(sql).await?;
    }
    let misleading = "select count(*) from pg_class
        where oid = 'orders.outbox'::regclass and reltuples between 1 and 10 and relpages > 500";
    ensure!(suite.number(misleading).await? == 1, "the planner's estimate is not misleading");
    let order = suite.start(ORDER).await?;
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

/// The generic plan of a prepared statement, independent of its parameters.
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

/// All queries checked at compile time that have a plan, with the number of their parameters.
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

/// A scan of the table, or of a whole index, unless a limit `above` ends it.
fn tables_read_whole(plan: &Value, partial: &HashSet<String>, above: bool, found: &mut dyn FnMut(&str)) {
    match plan {
        Value::Object(node) => {
            let text = |name: &str| node.get(name).and_then(Value::as_str);
            // A subplan that is computed once per statement runs to its end.
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
