//! How an armed point gets passed: mostly by customers who order, else by one who cancels, an operator, a supplier, or
//! a deadline.

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
use tokio::time::{sleep, sleep_until};
use uuid::Uuid;

use super::{
    Case, DEADLINE, Shared,
    load::{self, Change, Crowd, MIX, Wish},
    told::Told,
};
use crate::stage::Replica;

/// By then the process has to be gone.
pub(super) const CRASH_LIMIT: Duration = Duration::from_secs(20);
/// So long before a deadline, whoever else could notice it is frozen.
const FROZEN_BEFORE: Duration = Duration::from_millis(500);
/// So long after a deadline, nobody will notice it any more who has not.
const NOTICED_AFTER: Duration = Duration::from_millis(1_500);

/// How the point is passed in the step.
enum Way {
    /// By orders of these kinds, in turn.
    Orders(&'static [Wish]),
    /// By the first orders of a new customer.
    Newcomer,
    /// By changes of products.
    Products(Change),
    /// By orders that have no end by their deadline.
    Late,
    /// By a customer who cancels a confirmed order.
    Cancellation,
    /// By an operator who drives a compensation whose receipts are missing.
    Resumption,
}

fn way(case: &Case) -> Way {
    if case.point == FaultPoint::BetweenTimeoutAndCompensation {
        return Way::Late;
    }
    match case.step.map_or("", |step| step.name) {
        "create_order" => Way::Newcomer,
        "cancel_unfillable_order" => Way::Orders(&[Wish::TooMuch]),
        "cancel_unpaid_order" => Way::Orders(&[Wish::Declined]),
        "release_stock" | "refund_payment" => Way::Orders(&[Wish::Regretted]),
        "detect_timeout" | "cancel_timed_out_order" => Way::Late,
        "cancel_order_on_request" => Way::Cancellation,
        "drive_compensation" => Way::Resumption,
        "project_product_created" => Way::Products(Change::New),
        "project_product_price_changed" => Way::Products(Change::Price),
        "project_product_details_changed" => Way::Products(Change::Name),
        // A step that no order of these takes is not hit, and the sweep fails.
        _ => Way::Orders(MIX),
    }
}

/// Arms the fault and has the point passed. True when the process is gone; the clients may still wait for answers.
pub(super) async fn provoke(stage: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Crowd)> {
    let crowd = match way(case) {
        Way::Late => return late(stage, case, victim).await,
        Way::Cancellation => return cancellation(stage, case, victim).await,
        Way::Resumption => return resumption(stage, case, victim).await,
        Way::Orders(wishes) => {
            arm(stage, case, victim, &scope_of_step(case)).await?;
            Crowd::of_customers(stage, case, wishes, "customer")
        }
        Way::Newcomer => {
            // Nothing of theirs can pass the point before an order of theirs is created.
            let customer = format!("newcomer-{}", Uuid::now_v7());
            arm(stage, case, victim, &json!({"customer_id": customer})).await?;
            Crowd::of_customers(stage, case, &[Wish::Plain], &customer)
        }
        Way::Products(change) => {
            arm(stage, case, victim, &scope_of_step(case)).await?;
            Crowd::of_suppliers(stage, change)
        }
    };
    Ok((is_gone_by(victim, Instant::now() + CRASH_LIMIT).await, crowd))
}

fn scope_of_step(case: &Case) -> Value {
    case.step_of_event().map_or_else(|| json!({}), |step| json!({"step": step}))
}

async fn arm(stage: &Shared, case: &Case, victim: &Replica, scope: &Value) -> anyhow::Result<()> {
    let fault = json!({
        "point": case.point.as_str(), "kind": "crash", "first": 1, "skip": case.hit.saturating_sub(1), "scope": scope,
        "expires_in_seconds": 120,
    });
    match victim.suite(stage).arm(victim.service, &fault).await {
        Ok(_) => Ok(()),
        // What is left of the case before may pass the point before the process can answer.
        Err(SuiteError::Unreachable { .. }) if is_gone_by(victim, Instant::now() + Duration::from_secs(1)).await => {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be armed", victim.program.name)),
    }
}

/// Takes back what is armed; a process that is gone has nothing armed.
pub(super) async fn disarm(stage: &Shared, victim: &Replica) {
    let _ = victim.suite(stage).disarm(victim.service).await;
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

/// Orders that time out, again and again, until the process that is to notice it is gone.
async fn late(stage: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Crowd)> {
    let (mut crowd, began) = (Crowd::default(), Instant::now());
    while began.elapsed() < CRASH_LIMIT {
        if late_once(stage, case, victim, &mut crowd.told).await? {
            return Ok((true, crowd));
        }
        disarm(stage, victim).await;
    }
    Ok((false, crowd))
}

async fn late_once(stage: &Shared, case: &Case, victim: &Replica, told: &mut Told) -> anyhow::Result<bool> {
    // New ones each time, so that what is left of the last ones is not taken for them.
    let customer = format!("late-{}", Uuid::now_v7());
    let deadline = Instant::now() + DEADLINE;
    let orders = load::place_slow_orders(stage, &customer).await?;
    told.accepted.extend(orders.iter().map(|order_id| (*order_id, Wish::Slow)));
    // From now on nobody works on them until they time out: whoever passes the point with them is the one who notices.
    if !are_reserved(stage, &orders).await {
        return Ok(false);
    }
    let (scope, others) = match case.step_of_event() {
        Some(_) => (scope_of_step(case), Vec::new()),
        None => {
            let others = stage.replicas.iter().filter(|replica| replica.service != case.service);
            (json!({"customer_id": customer}), others.cloned().collect())
        }
    };
    arm(stage, case, victim, &scope).await?;
    sleep_until((deadline - FROZEN_BEFORE).into()).await;
    while_frozen(&others, is_gone_by(victim, deadline + NOTICED_AFTER)).await
}

async fn are_reserved(stage: &Shared, orders: &[Uuid]) -> bool {
    let reserved = eventually(DEADLINE / 2, async || {
        let count = "select count(*) from saga.saga_instance where business_key = any($1) and current_step >= 1";
        let count: i64 = sqlx::query_scalar(count).bind(orders.to_vec()).fetch_one(&stage.pool).await?;
        ensure!(usize::try_from(count)? == orders.len(), "{count} orders are reserved");
        anyhow::Ok(())
    })
    .await;
    reserved.is_ok()
}

async fn cancellation(stage: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Crowd)> {
    let mut crowd = Crowd::default();
    let Order { order_id, .. } = load::confirmed_order(stage.suite(), &mut crowd.told).await?;
    // What was to be done for the order is done: the next transaction about it is the cancellation.
    arm(stage, case, victim, &json!({"order_id": order_id.to_string()})).await?;
    let customer = Arc::clone(stage);
    crowd.spawn(async move {
        load::cancel(customer.suite(), order_id).await?;
        Ok(Told { cancelled: vec![order_id], ..Told::default() })
    });
    Ok((is_gone_by(victim, Instant::now() + CRASH_LIMIT).await, crowd))
}

async fn resumption(stage: &Shared, case: &Case, victim: &Replica) -> anyhow::Result<(bool, Crowd)> {
    let mut crowd = Crowd::default();
    let placed = load::confirmed_order(stage.suite(), &mut crowd.told).await?;
    // Without inventory's receipt the compensation cannot end.
    let inventory = stage.replicas_of(INVENTORY);
    let gone = while_frozen(&inventory, drive_again(stage, case, victim, placed, &mut crowd)).await??;
    Ok((gone, crowd))
}

async fn drive_again(
    stage: &Shared,
    case: &Case,
    victim: &Replica,
    placed: Order,
    crowd: &mut Crowd,
) -> anyhow::Result<bool> {
    let Order { order_id, saga_id, .. } = placed;
    load::cancel(stage.suite(), order_id).await?;
    crowd.told.cancelled.push(order_id);
    arm(stage, case, victim, &json!({"order_id": order_id.to_string()})).await?;
    let operator = Arc::clone(stage);
    crowd.spawn(async move {
        load::resume(operator.suite(), saga_id).await?;
        Ok(Told::default())
    });
    Ok(is_gone_by(victim, Instant::now() + CRASH_LIMIT).await)
}

/// They go on in any case, once it is done.
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
