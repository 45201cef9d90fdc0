//! The coordinator dies between any two transitions, and another replica goes on.

use crate::prelude::*;

use super::PLACE;

/// The steps that a coordinator commands, with an order that has it do so.
const COMMANDED: [(&str, &str); 4] = [
    ("reserve_stock", "tok_visa"),
    ("process_payment", "tok_visa"),
    ("refund_payment", "tok_declined"),
    ("release_stock", "tok_declined"),
];

/// The steps whose transitions it stores.
const STORED: [(&str, &str); 7] = [
    ("create_order", "tok_visa"),
    ("reserve_stock", "tok_visa"),
    ("confirm_order", "tok_visa"),
    ("cancel_order", "tok_declined"),
    ("refund_payment", "tok_declined"),
    ("release_stock", "tok_declined"),
    ("cancel_order_on_request", "tok_visa"),
];

/// A suite of real programs, with two replicas of order.
struct Lab {
    suite: TestSuite,
    settings: Vec<(&'static str, String)>,
    survivor: Running,
    inventory: Running,
    _payment: Running,
}

impl Lab {
    async fn start() -> anyhow::Result<Lab> {
        let suite = TestSuite::new().await?;
        let inventory = Running::start(&suite, INVENTORY, &[]).await?;
        let payment = Running::start(&suite, PAYMENT, &[]).await?;
        let settings = vec![
            ("FAULTS_ENABLED", "true".to_owned()),
            ("COORDINATOR_LEASE", "2s".to_owned()),
            ("INVENTORY_URL", inventory.client.base().to_owned()),
            ("PAYMENT_URL", payment.client.base().to_owned()),
        ];
        let survivor = order(&suite, &settings).await?;
        eventually(async || {
            let created = inventory.client.create_product("A", 100, 1_000).await;
            created.is_ok_and(|answer| matches!(answer.status, 201 | 409))
        })
        .await?;
        eventually(async || survivor.client.get("/api/products/A").await.is_ok_and(|a| a.status == 200)).await?;
        Ok(Lab { suite, settings, survivor, inventory, _payment: payment })
    }

    /// Has a replica of order die at the point, in the step; the order then ends as it should.
    async fn kill_at(&self, point: &str, step: &str, token: &str) -> Test {
        let mut victim = order(&self.suite, &self.settings).await?;
        let by_customer = step == "cancel_order_on_request";
        let body = order_of(&[("A", 1)], token);
        let crash = json!({"point": point, "kind": "crash", "first": 1, "scope": {"step": step}});
        let key = Uuid::now_v7().to_string();
        let place = |client: &Client| {
            let request = client.request(Method::POST, PLACE).header("idempotency-key", &key).json(&body);
            let client = client.clone();
            async move { client.send(request).await }
        };
        if by_customer {
            let placed = place(&victim.client).await?.expect(201)?;
            victim.client.post("/api/admin/faults", &crash).await?.expect(201)?;
            let path = format!("/api/orders/{}/cancel", placed["order_id"].as_str().unwrap());
            ensure!(victim.client.post(&path, &json!({"reason": "changed my mind"})).await.is_err());
            eventually(async || {
                self.survivor
                    .client
                    .post(&path, &json!({"reason": "again"}))
                    .await
                    .map(|a| matches!(a.status, 200 | 202))
            })
            .await?;
        } else {
            victim.client.post("/api/admin/faults", &crash).await?.expect(201)?;
            ensure!(place(&victim.client).await.is_err(), "the coordinator has answered");
        }
        eventually(async || !victim.process.is_running()).await?;
        // The repeat is answered by another replica, with the end that the order has there; not before the database knows that the
        // victim is gone, whose transaction holds the key until then.
        let again = eventually(async || {
            let again = place(&self.survivor.client).await?;
            let is_held = again.body["detail"].as_str().is_some_and(|why| why.contains("is in progress"));
            anyhow::Ok(Some(again).filter(|again| again.status != 202 && !is_held))
        })
        .await?;
        let expected: &[u16] = match (token, by_customer) {
            ("tok_declined", _) | (_, true) => &[409],
            // It had died before it had stored anything, or after.
            _ if step == "create_order" => &[200, 201],
            _ => &[200],
        };
        ensure!(expected.contains(&again.status), "{}: {:?}", again.status, again.body);
        Ok(())
    }
}

async fn order(suite: &TestSuite, settings: &[(&'static str, String)]) -> anyhow::Result<Running> {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Running::start(suite, ORDER, &settings).await
}

async fn killed_at(point: &str, steps: &[(&str, &str)]) -> Test {
    let lab = Lab::start().await?;
    for (step, token) in steps {
        lab.kill_at(point, step, token).await.with_context(|| format!("{point} of {step}"))?;
    }
    lab.suite.all_ended().await?;
    let confirmed = lab.suite.number(CONFIRMED).await?;
    ensure!(lab.suite.money_kept().await? == confirmed * 100);
    lab.suite.audit().await
}

cases! {
    fn killed_before_a_command() = killed_at("participant_call", &COMMANDED);
    fn killed_before_the_answer_is_stored() = killed_at("after_call_before_transition", &COMMANDED);
    fn killed_before_a_transition_is_committed() = killed_at("before_commit", &STORED);
    fn killed_after_a_transition_is_committed() = killed_at("after_commit_before_publish", &STORED);
}

/// A coordinator that is frozen in a payment, once the query counts one, and thawed when the order was cancelled and undone.
async fn frozen(point: &str, reached: &str) -> Test {
    let lab = Lab::start().await?;
    let mut zombie = order(&lab.suite, &lab.settings).await?;
    let held = json!({
        "point": point, "kind": "latency", "latency_ms": 4_000, "first": 1, "scope": {"step": "process_payment"},
    });
    zombie.client.post("/api/admin/faults", &held).await?.expect(201)?;
    let client = zombie.client.clone();
    let placing = tokio::spawn(async move { client.post(PLACE, &order_of(&[("A", 1)], "tok_visa")).await });
    lab.suite.becomes(reached, 1).await?;
    zombie.process.pause()?;
    let placed = lab.survivor.client.items("/api/orders").await?;
    let path = format!("/api/orders/{}/cancel", placed[0]["order_id"].as_str().unwrap());
    ensure!(lab.survivor.client.post(&path, &json!({"reason": "it takes too long"})).await?.status == 202);
    lab.suite.becomes("select count(*) from saga.saga_instance where status = 'COMPENSATED'", 1).await?;
    zombie.process.resume()?;
    placing.await??.expect(409)?;
    ensure!(lab.suite.money_kept().await? == 0);
    let product = lab.inventory.client.get("/api/products/A").await?.expect(200)?;
    ensure!(product["available"] == 1_000, "{product}");
    lab.suite.audit().await
}

cases! {
    fn a_frozen_coordinator_that_commands_late_charges_nothing() =
        frozen("participant_call", "select count(*) from saga.saga_instance where status = 'IN_PROGRESS'");
    fn a_frozen_coordinator_that_is_answered_late_changes_nothing() =
        frozen("after_call_before_transition", "select count(*) from payment.payment where status = 'CAPTURED'");
}
