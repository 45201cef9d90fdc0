//! PostgreSQL is set back to a moment ago under load, while the broker and the card processor are not. Then the runbook is
//! followed, and the outcome held against what the clients were told. The consumer that confirms orders is paused from that
//! moment on, so that it finds events which the database has forgotten, unless the streams are made anew in time.

mod outcome;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use async_nats::jetstream::{self, consumer::PullConsumer};
use console::{
    after_restore::{self, list, refund},
    audit::Options,
    suite::{Charge, GatewayFaults, Suite},
};
use contracts::{PAYMENT, order_fulfillment::CONFIRM_ORDER};
use testkit::eventually;
use tokio::time::sleep;
use uuid::Uuid;

pub use self::outcome::Report;
use crate::{
    Settings, Stage, chaos,
    history::{Conduct, History, Record},
    report, verdict,
    workload::{self, Pressure, Wishes, plenty_sku},
};

/// Deadlines as in production, and no supply but ours.
const SETTINGS: &[(&str, &str)] = &[("REPLENISH_ENABLED", "false"), ("CATALOGUE_REBUILD_EVERY", "5s")];
const PATIENCE: Duration = Duration::from_secs(60);
/// How slow the card processor is, so that many orders are under way at any moment.
const LATENCY_MS: u64 = 800;
/// So young an order may be that no stream tells of it, and that nothing but its client knows.
const PUBLISHED_WITHIN_MS: u64 = 2_000;
/// Orders of before the moment, confirmed by then, that are cancelled after it; and as many of after it.
const CHANGED_MINDS: usize = 5;

/// What a run consists of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides what is ordered.
    pub seed: u64,
    /// Orders a second.
    pub rate: u32,
    /// How long orders are placed before the moment to which the database is set back.
    pub before: Duration,
    /// How long they are placed after it.
    pub after: Duration,
    /// How long the suite may need to come to rest.
    pub settle: Duration,
}

/// What was seen.
struct Evidence {
    records: Vec<Record>,
    /// Sagas that ran when the backup was made.
    under_way: i64,
    /// When the server was stopped to be set back.
    stopped_ms: u64,
    /// Payments that order had not acknowledged then.
    unacknowledged: u64,
    /// Orders that were cancelled after it was made.
    changed_minds: Vec<Uuid>,
    command: after_restore::Report,
    audit: Vec<String>,
    settled: Duration,
}

pub async fn restore(settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let settings = settings.clone().with(SETTINGS);
    let stage = Stage::start(&settings).await?;
    chaos::supply(&stage).await?;
    let outcome = run(&stage, &settings, plan).await;
    stage.save_logs().await?;
    judge(&stage, plan, outcome?).await
}

async fn run(stage: &Arc<Stage>, settings: &Settings, plan: &Plan) -> anyhow::Result<Evidence> {
    let (history, pressure) = (Arc::new(History::default()), Arc::new(Pressure::default()));
    let suite = stage.suite();
    suite.arm_gateway(&GatewayFaults { latency_ms: LATENCY_MS, expires_in_seconds: 600, ..Default::default() }).await?;
    let orders = workload::send_orders(
        Arc::clone(stage),
        Arc::clone(&history),
        Arc::clone(&pressure),
        plan.rate,
        Wishes::new(plan.seed),
    );
    let orders = tokio::spawn(orders);
    sleep(plan.before).await;
    let confirmed = history.records();
    let under_way = back_up(stage).await?;
    let since = history.now_ms();
    let mut changed_minds = change_minds(suite, &confirmed).await?;
    suite.replenish(&plenty_sku(0), 5, "a supply that is forgotten").await?;
    sleep(plan.after).await;
    let mut forgotten = history.records();
    forgotten.retain(|record| record.acknowledged_ms.is_some_and(|at| at > since));
    changed_minds.extend(change_minds_once_charged(suite, forgotten).await?);
    pressure.stop();
    let stopped_ms = set_back(stage, &history).await?;
    let unacknowledged = unacknowledged(stage).await?;

    let listed = list(&stage.stores(), suite).await?;
    settings.renew(stage).await?;
    start_services(stage).await?;
    suite.disarm_gateway().await?;
    let mut clients = orders.await?;
    let answered = tokio::time::timeout(plan.settle, async { while clients.join_next().await.is_some() {} });
    answered.await.context("clients still wait for an answer")?;

    let settling = Instant::now();
    let command = put_right(stage, listed).await?;
    let options = Options { settle: plan.settle, whole: true, ..Options::default() };
    let audit = stage.audit(options).await?;
    let audit = verdict::violations(&audit);
    let (records, settled) = (history.records(), settling.elapsed());
    history.save(&settings.logs.join("history.jsonl"))?;
    Ok(Evidence { records, under_way, stopped_ms, unacknowledged, changed_minds, command, audit, settled })
}

async fn back_up(stage: &Stage) -> anyhow::Result<i64> {
    let under_way = "select count(*) from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')";
    let under_way = sqlx::query_scalar(under_way).fetch_one(&stage.pool).await?;
    let mut postgres = stage.postgres.lock().await;
    postgres.stop_fast().await?;
    postgres.back_up()?;
    postgres.start_again().await?;
    drop(postgres);
    // What it is told after the moment is not acknowledged when the database is set back, which forgets the pause, too.
    sqlx::query("insert into orders.paused_consumer (consumer) values ($1)")
        .bind(CONFIRM_ORDER.consumer())
        .execute(&stage.pool)
        .await?;
    stage.ready(PATIENCE).await?;
    Ok(under_way)
}

/// No service runs afterwards. Returns when the server had stopped.
async fn set_back(stage: &Stage, history: &History) -> anyhow::Result<u64> {
    let mut postgres = stage.postgres.lock().await;
    postgres.stop_immediate().await?;
    let stopped_ms = history.now_ms();
    for replica in &stage.replicas {
        replica.program.kill().await;
    }
    postgres.put_back()?;
    postgres.start_again().await?;
    Ok(stopped_ms)
}

async fn start_services(stage: &Stage) -> anyhow::Result<()> {
    for replica in &stage.replicas {
        replica.program.start().await?;
    }
    stage.ready(PATIENCE).await
}

async fn unacknowledged(stage: &Stage) -> anyhow::Result<u64> {
    let broker = jetstream::new(stage.broker().await?);
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
        eventually(PATIENCE, async || suite.cancel(*order_id, "changed my mind").await).await?;
    }
    Ok(cancelled)
}

/// Cancels some orders that are charged, and waits until that is given back.
async fn change_minds_once_charged(suite: &Suite, mut records: Vec<Record>) -> anyhow::Result<Vec<Uuid>> {
    let charges = suite.charges().await?;
    let charged: HashSet<Uuid> = charges.iter().filter_map(|charge| charge.order_id.as_ref()?.parse().ok()).collect();
    records.retain(|record| record.acknowledged.iter().all(|order_id| charged.contains(order_id)));
    let cancelled = change_minds(suite, &records).await?;
    eventually(PATIENCE, async || {
        let charges = suite.charges().await?;
        let given_back =
            charges.iter().filter(|charge| charge.refunded).filter_map(|charge| charge.order_id.as_deref());
        let given_back: HashSet<&str> = given_back.collect();
        ensure!(cancelled.iter().all(|order_id| given_back.contains(order_id.to_string().as_str())), "not given back");
        anyhow::Ok(())
    })
    .await?;
    Ok(cancelled)
}

/// As `scripts/after-restore --refund` does, until nothing is left.
async fn put_right(stage: &Stage, listed: after_restore::Report) -> anyhow::Result<after_restore::Report> {
    const TIMES: usize = 5;
    let suite = stage.suite();
    let mut command = refund(&stage.stores(), suite, listed.clone()).await?;
    for _ in 1..TIMES {
        if command.left.is_empty() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
        command.left = refund(&stage.stores(), suite, listed.clone()).await?.left;
    }
    println!("{command}");
    Ok(command)
}

async fn judge(stage: &Stage, plan: &Plan, evidence: Evidence) -> anyhow::Result<Report> {
    let Evidence { records, under_way, stopped_ms, unacknowledged, changed_minds, command, audit, settled } = evidence;
    let mut failures: Vec<String> = audit.into_iter().map(|found| format!("audit: {found}")).collect();
    failures.extend(command.left.iter().map(|left| format!("left: {left}")));
    let orders = verdict::ended_orders(&stage.pool).await?;
    let listed: HashMap<Uuid, &str> =
        command.orders.iter().map(|order| (order.order_id, order.customer_id.as_str())).collect();
    let there = orders.iter().filter(|order| listed.contains_key(&order.order_id));
    failures.extend(there.map(|order| format!("order {} is listed, and there", order.order_id)));
    let placed = records.len();
    let there: HashSet<Uuid> = orders.iter().map(|order| order.order_id).collect();
    let (unpublished, records): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| {
        let at = record.acknowledged_ms.unwrap_or(u64::MAX);
        let is_known = |order_id: &Uuid| there.contains(order_id) || listed.contains_key(order_id);
        (stopped_ms.saturating_sub(PUBLISHED_WITHIN_MS)..=stopped_ms).contains(&at)
            && !record.acknowledged.iter().any(is_known)
    });
    let (records, told) = without(&listed, records, &mut failures);
    let dead_letters = verdict::unexpected_dead_letters(&stage.pool).await?;
    let findings = verdict::Findings { dead_letters, ..verdict::compare(&records, &orders) };
    failures.extend(report::by_kind(findings.kinds(), usize::MAX));
    let changed_minds: HashSet<Uuid> = changed_minds.into_iter().collect();
    for order in orders.iter().filter(|order| changed_minds.contains(&order.order_id) && order.status != "CANCELLED") {
        failures.push(format!("order {} is {}, and was cancelled", order.order_id, order.status));
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
        untold: listed.len() - told,
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

/// The records without the orders that are listed as forgotten, and how many of these a client was told of.
fn without(listed: &HashMap<Uuid, &str>, records: Vec<Record>, failures: &mut Vec<String>) -> (Vec<Record>, usize) {
    let mut told = 0;
    let strip = |mut record: Record| {
        let (forgotten, known): (Vec<Uuid>, Vec<Uuid>) =
            record.acknowledged.iter().copied().partition(|order_id| listed.contains_key(order_id));
        for order_id in forgotten.iter().filter(|order_id| listed[*order_id] != record.customer_id) {
            failures.push(format!("order {order_id} is not {}'s, as it is listed", listed[order_id]));
        }
        told += forgotten.len();
        if known.is_empty() && !forgotten.is_empty() {
            // Its client was answered, and asks no more.
            record.conduct = Conduct::WalksAway;
        }
        Record { acknowledged: known, ..record }
    };
    let records = records.into_iter().map(strip).collect();
    (records, told)
}
