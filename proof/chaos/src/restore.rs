//! PostgreSQL is restored from a backup under load, while the broker and the card processor keep their data. Then the runbook is
//! followed, and the outcome compared with the clients' answers. The consumer that confirms orders is paused from the backup on,
//! so that it would process events that the restored database does not have, unless the streams are recreated first.

mod outcome;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use async_nats::jetstream::{self, consumer::PullConsumer};
use console::{
    after_restore::{self, list, refund},
    audit::Options,
    suite::{Charge, GatewayFaults, Suite},
};
use contracts::{
    PAYMENT,
    order_fulfillment::{CONFIRM_ORDER, OrderCreated},
};
use saga::Event;
use testkit::eventually;
use tokio::time::sleep;
use uuid::Uuid;

pub use self::outcome::Report;
use crate::{
    Settings, Testbed, chaos,
    history::{Conduct, Record},
    report, verdict,
    workload::{self, Run, plenty_sku},
};

/// A deadline that outlasts the time from the backup until the restored suite runs, and only the run's own supply.
const SETTINGS: &[(&str, &str)] =
    &[("SAGA_DEADLINE", "5m"), ("REPLENISH_ENABLED", "false"), ("CATALOGUE_REBUILD_EVERY", "5s")];
/// The time limit of each wait for the suite.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The latency of the card processor, so that many orders are in flight at any moment.
const LATENCY_MS: u64 = 800;
/// This many orders from before the backup, and from after it, are cancelled after the backup.
const CHANGED_MINDS: usize = 5;

/// What a run consists of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of the orders.
    pub seed: u64,
    /// Orders a second.
    pub rate: u32,
    /// The time of orders before the backup.
    pub before: Duration,
    /// The time of orders after the backup.
    pub after: Duration,
    /// The time limit for the suite to come to rest.
    pub settle: Duration,
}

/// The observations of a run.
struct Evidence {
    records: Vec<Record>,
    /// Running sagas at the time of the backup.
    under_way: i64,
    /// Orders that were not marked as published by then: only their clients may have a trace of them.
    unpublished: HashSet<Uuid>,
    /// Payments that order had not acknowledged by then.
    unacknowledged: u64,
    /// Orders that were cancelled after the backup.
    changed_minds: Vec<Uuid>,
    command: after_restore::Report,
    audit: Vec<String>,
    settled: Duration,
}

pub async fn restore(settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let settings = settings.clone().with(SETTINGS);
    let testbed = Testbed::start(&settings).await?;
    chaos::supply(&testbed).await?;
    let outcome = run(&testbed, &settings, plan).await;
    testbed.save_logs().await?;
    judge(&testbed, plan, outcome?).await
}

async fn run(testbed: &Arc<Testbed>, settings: &Settings, plan: &Plan) -> anyhow::Result<Evidence> {
    let run = Run::on(testbed);
    run.pressure.by_events_only.store(true, Ordering::Relaxed);
    let suite = testbed.suite();
    suite.arm_gateway(&GatewayFaults { latency_ms: LATENCY_MS, expires_in_seconds: 600, ..Default::default() }).await?;
    let orders = tokio::spawn(workload::send_orders(Arc::clone(&run), plan.rate, plan.seed));
    sleep(plan.before).await;
    let confirmed = run.history.records();
    let under_way = back_up(testbed).await?;
    let since = run.history.now_ms();
    let mut changed_minds = change_minds(suite, &confirmed).await?;
    suite.replenish(&plenty_sku(0), 5, "a supply that the restore loses").await?;
    sleep(plan.after).await;
    let mut forgotten = run.history.records();
    forgotten.retain(|record| record.acknowledged_ms.is_some_and(|at| at > since));
    changed_minds.extend(change_minds_once_charged(suite, forgotten).await?);
    run.pressure.stop();
    let unpublished = restore_database(testbed).await?;
    let unacknowledged = unacknowledged(testbed).await?;

    let listed = list(&testbed.stores(), suite).await?;
    // NATS can lose the folder of a stream that is deleted by one program while another creates it.
    testbed.reconciler.stop().await?;
    settings.renew(testbed).await?;
    testbed.reconciler.start().await?;
    start_services(testbed).await?;
    suite.disarm_gateway().await?;
    let mut clients = orders.await?;
    let answered = tokio::time::timeout(plan.settle, async { while clients.join_next().await.is_some() {} });
    answered.await.context("clients still wait for an answer")?;

    let settling = Instant::now();
    let command = run_after_restore(testbed, listed).await?;
    let options = Options { settle: plan.settle, whole: true, ..Options::default() };
    let audit = verdict::violations(&testbed.audit(options).await?);
    let (records, settled) = (run.history.records(), settling.elapsed());
    run.history.save(&settings.logs.join("history.jsonl"))?;
    Ok(Evidence { records, under_way, unpublished, unacknowledged, changed_minds, command, audit, settled })
}

async fn back_up(testbed: &Testbed) -> anyhow::Result<i64> {
    let under_way = "select count(*) from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')";
    let under_way = sqlx::query_scalar(under_way).fetch_one(&testbed.pool).await?;
    let mut postgres = testbed.postgres.lock().await;
    postgres.stop_fast().await?;
    postgres.back_up()?;
    postgres.start_again().await?;
    drop(postgres);
    // Its events after the backup stay unacknowledged until the restore, which removes the pause, too.
    sqlx::query("insert into orders.paused_consumer (consumer) values ($1)")
        .bind(CONFIRM_ORDER.consumer())
        .execute(&testbed.pool)
        .await?;
    testbed.ready(WAIT_LIMIT).await?;
    Ok(under_way)
}

/// Restores the backup; no service runs afterwards. Returns the orders that were not marked as published before.
async fn restore_database(testbed: &Testbed) -> anyhow::Result<HashSet<Uuid>> {
    let mut postgres = testbed.postgres.lock().await;
    postgres.stop_immediate().await?;
    for replica in &testbed.replicas {
        replica.program.kill().await;
    }
    postgres.start_again().await?;
    let unpublished = "select aggregate_id::uuid from orders.outbox where event_type = $1";
    let unpublished =
        sqlx::query_scalar(unpublished).bind(OrderCreated::TYPE.wire_name()).fetch_all(&testbed.pool).await?;
    postgres.stop_immediate().await?;
    postgres.put_back()?;
    postgres.start_again().await?;
    Ok(unpublished.into_iter().collect())
}

async fn start_services(testbed: &Testbed) -> anyhow::Result<()> {
    for replica in &testbed.replicas {
        replica.program.start().await?;
    }
    testbed.ready(WAIT_LIMIT).await
}

async fn unacknowledged(testbed: &Testbed) -> anyhow::Result<u64> {
    let broker = jetstream::new(testbed.broker().await?);
    let stream = broker.get_stream(PAYMENT.stream()).await?;
    let consumer: PullConsumer =
        stream.get_consumer(&CONFIRM_ORDER.consumer()).await.map_err(anyhow::Error::from_boxed)?;
    let info = consumer.cached_info();
    Ok(info.num_pending + info.num_ack_pending as u64)
}

/// Cancels some orders that would stay confirmed.
async fn change_minds(suite: &Suite, records: &[Record]) -> anyhow::Result<Vec<Uuid>> {
    let confirmed = records.iter().filter(|record| record.has_to_be_confirmed);
    let cancelled: Vec<Uuid> = confirmed.flat_map(|record| &record.acknowledged).take(CHANGED_MINDS).copied().collect();
    for order_id in &cancelled {
        eventually(WAIT_LIMIT, async || suite.cancel(*order_id, "changed my mind").await).await?;
    }
    Ok(cancelled)
}

/// Cancels some orders that are charged, and waits for their refunds.
async fn change_minds_once_charged(suite: &Suite, mut records: Vec<Record>) -> anyhow::Result<Vec<Uuid>> {
    let charges = suite.charges().await?;
    let charged: HashSet<Uuid> = charges.iter().filter_map(|charge| charge.order_id.as_ref()?.parse().ok()).collect();
    records.retain(|record| record.acknowledged.iter().all(|order_id| charged.contains(order_id)));
    let cancelled = change_minds(suite, &records).await?;
    eventually(WAIT_LIMIT, async || {
        let charges = suite.charges().await?;
        let given_back =
            charges.iter().filter(|charge| charge.refunded).filter_map(|charge| charge.order_id.as_deref());
        let given_back: HashSet<&str> = given_back.collect();
        ensure!(cancelled.iter().all(|order_id| given_back.contains(order_id.to_string().as_str())), "not refunded");
        anyhow::Ok(())
    })
    .await?;
    Ok(cancelled)
}

/// Like `scripts/after-restore --refund`, repeated until nothing is left.
async fn run_after_restore(testbed: &Testbed, listed: after_restore::Report) -> anyhow::Result<after_restore::Report> {
    const TIMES: usize = 5;
    let suite = testbed.suite();
    let mut command = refund(&testbed.stores(), suite, listed.clone()).await?;
    for _ in 1..TIMES {
        if command.left.is_empty() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
        command.left = refund(&testbed.stores(), suite, listed.clone()).await?.left;
    }
    println!("{command}");
    Ok(command)
}

async fn judge(testbed: &Testbed, plan: &Plan, evidence: Evidence) -> anyhow::Result<Report> {
    let Evidence { records, under_way, unpublished, unacknowledged, changed_minds, command, audit, settled } = evidence;
    let mut failures: Vec<String> = audit.into_iter().map(|found| format!("audit: {found}")).collect();
    failures.extend(command.left.iter().map(|left| format!("left: {left}")));
    let orders = verdict::ended_orders(&testbed.pool).await?;
    let listed: HashMap<Uuid, &str> =
        command.orders.iter().map(|order| (order.order_id, order.customer_id.as_str())).collect();
    let there = orders.iter().filter(|order| listed.contains_key(&order.order_id));
    failures.extend(there.map(|order| format!("order {} is listed as lost, and exists", order.order_id)));
    let placed = records.len();
    let there: HashSet<Uuid> = orders.iter().map(|order| order.order_id).collect();
    let (unpublished, records): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| {
        let is_known = |order_id: &Uuid| there.contains(order_id) || listed.contains_key(order_id);
        record.acknowledged.iter().any(|order_id| unpublished.contains(order_id))
            && !record.acknowledged.iter().any(is_known)
    });
    let (records, acknowledged) = without(&listed, records, &mut failures);
    let dead_letters = verdict::unexpected_dead_letters(&testbed.pool).await?;
    let findings = verdict::Violations { dead_letters, ..verdict::compare(&records, &orders) };
    failures.extend(report::by_kind(findings.kinds(), usize::MAX));
    let changed_minds: HashSet<Uuid> = changed_minds.into_iter().collect();
    for order in orders.iter().filter(|order| changed_minds.contains(&order.order_id) && order.status != "CANCELLED") {
        failures
            .push(format!("order {} is {}, although its cancellation was acknowledged", order.order_id, order.status));
    }
    let cancelled = verdict::cancelled_without_cause(&records, &orders);
    let cancelled = cancelled.iter().filter(|(order, _)| !changed_minds.contains(&order.order_id));
    failures.extend(cancelled.map(|(order, _)| format!("order {} had to be confirmed", order.order_id)));
    let (given_back, charges): (Vec<&Charge>, Vec<&Charge>) =
        command.charges.iter().partition(|charge| charge.refunded);
    let report = Report {
        seed: plan.seed,
        rate: plan.rate,
        placed,
        there: orders.len(),
        under_way,
        unacknowledged,
        forgotten: listed.len(),
        untold: listed.len() - acknowledged,
        unpublished: unpublished.len(),
        charges: charges.len(),
        refunded: charges.iter().filter_map(|charge| charge.amount).sum(),
        given_back: given_back.len(),
        cancelled_again: command.uncancelled.len(),
        products: command.products,
        settled_seconds: settled.as_secs(),
        failures,
    };
    Ok(report.with_demands())
}

/// The records without the orders that are listed as lost, and how many of these a client got an acknowledgement for.
fn without(listed: &HashMap<Uuid, &str>, records: Vec<Record>, failures: &mut Vec<String>) -> (Vec<Record>, usize) {
    let mut acknowledged = 0;
    let strip = |mut record: Record| {
        let (forgotten, known): (Vec<Uuid>, Vec<Uuid>) =
            record.acknowledged.iter().copied().partition(|order_id| listed.contains_key(order_id));
        for order_id in forgotten.iter().filter(|order_id| listed[*order_id] != record.customer_id) {
            failures.push(format!("order {order_id} is listed under {}, who is not its customer", listed[order_id]));
        }
        acknowledged += forgotten.len();
        if known.is_empty() && !forgotten.is_empty() {
            // Its client got an answer, so it does not repeat its request.
            record.conduct = Conduct::WalksAway;
        }
        Record { acknowledged: known, ..record }
    };
    let records = records.into_iter().map(strip).collect();
    (records, acknowledged)
}
