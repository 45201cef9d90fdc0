//! How an armed point is passed: mostly by orders, else by a cancellation, an operator, a supplier, or a deadline.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use console::suite::{Order, SuiteError};
use contracts::INVENTORY;
use faults::FaultPoint;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    Case, SLOW_ANSWER, Shared,
    answers::Answers,
    load::{self, Change, Clients, MIX, OrderKind},
};
use crate::testbed::Replica;

/// The time limit for the crash.
pub(super) const CRASH_LIMIT: Duration = Duration::from_secs(20);
/// The time limit for slow orders until their stock is reserved.
const RESERVE_LIMIT: Duration = Duration::from_secs(3);
/// The time after a deadline within which it is detected, if at all.
const NOTICED_AFTER: Duration = Duration::from_millis(1_500);
/// The other services are thawed this long before the first charge, at the latest.
const THAWED_BEFORE: Duration = Duration::from_millis(500);

/// What makes the step pass the point.
enum Trigger {
    /// By orders of these kinds, in turn.
    Orders(&'static [OrderKind]),
    /// By orders of these kinds, whose sagas a coordinator drives.
    Orchestrated(&'static [OrderKind]),
    /// By the first orders of a new customer.
    Newcomer,
    /// By changes of products.
    Products(Change),
    /// By orders whose deadline passes while the card processor takes its time.
    Late,
    /// By a customer who cancels a confirmed order.
    Cancellation,
    /// By an operator who resumes a compensation whose confirmations are missing.
    Resumption,
}

fn trigger(case: &Case) -> Trigger {
    if case.point == FaultPoint::BetweenTimeoutAndCompensation {
        return Trigger::Late;
    }
    if case.is_orchestrated() {
        return orchestrated(case);
    }
    match case.step.map_or("", |step| step.name) {
        "create_order" => Trigger::Newcomer,
        "cancel_unfillable_order" => Trigger::Orders(&[OrderKind::TooMuch]),
        "cancel_unpaid_order" => Trigger::Orders(&[OrderKind::Declined]),
        "release_stock" | "refund_payment" => Trigger::Orders(&[OrderKind::Regretted]),
        "detect_timeout" | "cancel_timed_out_order" => Trigger::Late,
        "cancel_order_on_request" => Trigger::Cancellation,
        "drive_compensation" => Trigger::Resumption,
        "project_product_created" => Trigger::Products(Change::New),
        "project_product_price_changed" => Trigger::Products(Change::Price),
        "project_product_details_changed" => Trigger::Products(Change::Name),
        // If these orders do not take the step, it is not hit, and the sweep fails.
        _ => Trigger::Orders(MIX),
    }
}

/// The same for the orchestrated twin.
fn orchestrated(case: &Case) -> Trigger {
    match case.step.map_or("", |step| step.name) {
        "cancel_order" | "refund_payment" | "release_stock" => Trigger::Orchestrated(&[OrderKind::Declined]),
        "cancel_order_on_request" => Trigger::Cancellation,
        "drive_compensation" => Trigger::Resumption,
        _ => Trigger::Orchestrated(&[OrderKind::Plain]),
    }
}

/// Arms the fault and makes clients pass the point. True when the process has crashed; clients may still wait for answers.
pub(super) async fn provoke(testbed: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Clients)> {
    let clients = match trigger(case) {
        Trigger::Late => return late(testbed, case, victim).await,
        Trigger::Cancellation => return cancellation(testbed, case, victim).await,
        Trigger::Resumption => return resumption(testbed, case, victim).await,
        Trigger::Orders(kinds) => {
            arm(testbed, case, victim, &scope_of_step(case)).await?;
            Clients::of_customers(testbed, case, kinds, "customer")
        }
        Trigger::Orchestrated(kinds) => {
            arm(testbed, case, victim, &scope_of_step(case)).await?;
            Clients::of_orchestrated(testbed, kinds)
        }
        Trigger::Newcomer => {
            // Only the creation of the customer's first order can pass the point.
            let customer = format!("newcomer-{}", Uuid::now_v7());
            arm(testbed, case, victim, &json!({"customer_id": customer})).await?;
            Clients::of_customers(testbed, case, &[OrderKind::Plain], &customer)
        }
        Trigger::Products(change) => {
            arm(testbed, case, victim, &scope_of_step(case)).await?;
            Clients::of_suppliers(testbed, change)
        }
    };
    Ok((is_gone_by(victim, Instant::now() + CRASH_LIMIT).await, clients))
}

fn scope_of_step(case: &Case) -> Value {
    case.scope().map_or_else(|| json!({}), |step| json!({"step": step}))
}

async fn arm(testbed: &Shared, case: &Case, victim: &Replica, scope: &Value) -> anyhow::Result<()> {
    let fault = json!({
        "point": case.point.as_str(), "kind": "crash", "first": 1, "skip": case.hit.saturating_sub(1), "scope": scope,
        "expires_in_seconds": 120,
    });
    match victim.suite(testbed).arm(victim.service, &fault).await {
        Ok(_) => Ok(()),
        // Work left over from the previous case may pass the point before the process can answer.
        Err(SuiteError::Unreachable { .. }) if is_gone_by(victim, Instant::now() + Duration::from_secs(1)).await => {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be armed", victim.program.name)),
    }
}

/// Disarms all faults; a process that has crashed has none.
pub(super) async fn disarm(testbed: &Shared, victim: &Replica) {
    let _ = victim.suite(testbed).disarm(victim.service).await;
}

async fn is_gone_by(victim: &Replica, end: Instant) -> bool {
    loop {
        if !victim.program.is_running().await {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Orders that time out, repeated until the process that should detect it has crashed.
async fn late(testbed: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Clients)> {
    let (mut clients, began) = (Clients::default(), Instant::now());
    while began.elapsed() < CRASH_LIMIT {
        if late_once(testbed, case, victim, &mut clients.answers).await? {
            return Ok((true, clients));
        }
        disarm(testbed, victim).await;
    }
    Ok((false, clients))
}

async fn late_once(testbed: &Shared, case: &Case, victim: &Replica, answers: &mut Answers) -> anyhow::Result<bool> {
    // A new customer each time, so that earlier orders do not match.
    let customer = format!("late-{}", Uuid::now_v7());
    let uncharged_until = Instant::now() + SLOW_ANSWER - THAWED_BEFORE;
    let orders = load::place_slow_orders(testbed, &customer).await?;
    answers.accepted.extend(orders.iter().map(|order_id| (*order_id, OrderKind::Slow)));
    // Until their charges are answered, only a detector can pass the point with them.
    if !are_reserved(testbed, &orders).await {
        return Ok(false);
    }
    let (scope, others) = match case.scope() {
        Some(_) => (scope_of_step(case), Vec::new()),
        None => {
            let others = testbed.replicas.iter().filter(|replica| replica.service != case.service);
            (json!({"customer_id": customer}), others.cloned().collect())
        }
    };
    arm(testbed, case, victim, &scope).await?;
    let noticed = async {
        // A frozen service may hold the lock of one.
        let due = "update saga.saga_instance set deadline = now()
            where saga_id in (
                select saga_id
                from saga.saga_instance
                where business_key = any($1) and status in ('STARTED', 'IN_PROGRESS')
                for update skip locked)";
        sqlx::query(due).bind(&orders).execute(&testbed.pool).await?;
        anyhow::Ok(is_gone_by(victim, uncharged_until.min(Instant::now() + NOTICED_AFTER)).await)
    };
    while_frozen(&others, noticed).await?
}

async fn are_reserved(testbed: &Shared, orders: &[Uuid]) -> bool {
    let reserved = eventually(RESERVE_LIMIT, async || {
        let count = "select count(*) from saga.saga_instance where business_key = any($1) and current_step >= 1";
        let count: i64 = sqlx::query_scalar(count).bind(orders.to_vec()).fetch_one(&testbed.pool).await?;
        ensure!(usize::try_from(count)? == orders.len(), "{count} orders are reserved");
        anyhow::Ok(())
    })
    .await;
    reserved.is_ok()
}

/// A confirmed order, of the case's kind of saga.
async fn confirmed(testbed: &Shared, case: &Case, answers: &mut Answers) -> anyhow::Result<Order> {
    match case.is_orchestrated() {
        true => load::confirmed_orchestrated(testbed.suite(), answers).await,
        false => load::confirmed_order(testbed.suite(), answers).await,
    }
}

/// The scope of a fault that hits the order; of the orchestrated twin, in the case's step only.
fn of_order(case: &Case, order_id: Uuid) -> Value {
    let order_id = order_id.to_string();
    case.scope().map_or_else(|| json!({"order_id": order_id}), |step| json!({"order_id": order_id, "step": step}))
}

async fn cancellation(testbed: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Clients)> {
    let mut clients = Clients::default();
    let Order { order_id, .. } = confirmed(testbed, case, &mut clients.answers).await?;
    // The order is complete, so the next transaction about it is the cancellation.
    arm(testbed, case, victim, &of_order(case, order_id)).await?;
    let customer = Arc::clone(testbed);
    clients.spawn(async move {
        let is_cancelled = load::cancel(customer.suite(), order_id).await?;
        Ok(Answers { cancelled: is_cancelled.then_some(order_id).into_iter().collect(), ..Answers::default() })
    });
    Ok((is_gone_by(victim, Instant::now() + CRASH_LIMIT).await, clients))
}

async fn resumption(testbed: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Clients)> {
    let mut clients = Clients::default();
    let Order { order_id, saga_id, .. } = confirmed(testbed, case, &mut clients.answers).await?;
    let retried = async {
        if load::cancel(testbed.suite(), order_id).await? {
            clients.answers.cancelled.insert(order_id);
        }
        arm(testbed, case, victim, &of_order(case, order_id)).await?;
        let operator = Arc::clone(testbed);
        clients.spawn(async move {
            load::resume(operator.suite(), saga_id).await?;
            Ok(Answers::default())
        });
        anyhow::Ok(is_gone_by(victim, Instant::now() + CRASH_LIMIT).await)
    };
    // Without inventory's confirmation the compensation cannot end.
    let gone = while_frozen(&testbed.replicas_of(INVENTORY), retried).await??;
    Ok((gone, clients))
}

/// Freezes the replicas during the work; they are thawed in any case.
async fn while_frozen<T>(replicas: &[Arc<Replica>], work: impl Future<Output = T>) -> anyhow::Result<T> {
    let mut frozen: anyhow::Result<()> = Ok(());
    for replica in replicas {
        frozen = frozen.and(replica.program.freeze().await);
    }
    let done = work.await;
    for replica in replicas {
        replica.program.thaw().await?;
    }
    frozen.map(|()| done)
}
