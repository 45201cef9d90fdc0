//! Dead letters: replayed one by one or in batches, only in the failed step; the outcome of a dry run; and their retention.

mod auto_replay;
mod batch;
mod batch_ends;
mod discard;
mod dry_run;
mod forgotten;
mod single;

use async_nats::HeaderMap;
use contracts::catalogue::ProductCreated;

use crate::{messages::product, prelude::*};

/// Why most tests of dead letters do not audit.
const UNAUDITED: &str = "most dead letters are made up, and left as they are";

const STEP: &str = "project_product_created";

/// Dead-letters a failing event at once, without a breaker.
fn at_once() -> Tuning {
    Tuning { resilience: "project_product_created.attempts=1", breakers_enabled: false, ..Tuning::default() }
}

/// A product that order's view rejects while [`forbid`] is in effect.
fn unwelcome(n: usize) -> ProductCreated {
    product(&format!("X-{n}"))
}

/// Makes the step fail for the SKUs that match this pattern.
async fn forbid(suite: &TestSuite, like: &str) -> Test {
    suite.forbid("orders.product_view", &format!("sku not like '{like}'")).await
}

/// Removes the cause.
async fn remove_cause(suite: &TestSuite) -> Test {
    suite.allow("orders.product_view").await
}

/// Blocks every replay of the step until it is dropped, for at most the lock timeout.
async fn hold_up(suite: &TestSuite) -> anyhow::Result<sqlx::Transaction<'static, sqlx::Postgres>> {
    let mut transaction = suite.pool.begin().await?;
    sqlx::query("lock table orders.product_view in exclusive mode").execute(&mut *transaction).await?;
    Ok(transaction)
}

/// Makes `n` dead letters of the step, whose cause persists; returns them oldest first.
async fn make_letters(suite: &TestSuite, order: &Replica, n: usize) -> anyhow::Result<Vec<Value>> {
    forbid(suite, "X%").await?;
    let jetstream = suite.jetstream().await?;
    for n in 0..n {
        suite.publish_to(&jetstream, &Forged::new(INVENTORY, Uuid::now_v7(), &unwelcome(n))).await?;
    }
    let mut letters = order.client.until_items(&format!("/api/admin/dlq?limit=200&step={STEP}"), n).await?;
    letters.reverse();
    Ok(letters)
}

/// A suite with `n` dead letters of order, whose cause is removed.
async fn suite_with_dead_letters(n: usize) -> anyhow::Result<(TestSuite, Replica, Vec<Value>)> {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let made = make_letters(&suite, &order, n).await?;
    remove_cause(&suite).await?;
    Ok((suite, order, made))
}

/// The dead letters of a service that match a query, oldest first.
async fn letters(replica: &Replica, query: &str) -> anyhow::Result<Vec<Value>> {
    let mut letters = replica.client.items(&format!("/api/admin/dlq?limit=200&{query}")).await?;
    letters.reverse();
    Ok(letters)
}

fn id(letter: &Value) -> &str {
    letter["id"].as_str().unwrap()
}

/// The SKU of the product that a dead letter is about.
fn sku(letter: &Value) -> String {
    let event: Value = serde_json::from_str(letter["payload"].as_str().unwrap()).unwrap();
    event["product"]["sku"].as_str().unwrap().to_owned()
}

async fn letter(replica: &Replica, letter: &Value) -> anyhow::Result<Value> {
    replica.client.get(&format!("/api/admin/dlq/{}", id(letter))).await?.expect(200)
}

async fn replay_one(replica: &Replica, letter: &Value) -> anyhow::Result<Answer> {
    replica.client.post(&format!("/api/admin/dlq/{}/replay", id(letter)), &json!({"reason": "repaired"})).await
}

/// Requests a batch (or a dry run) under the name of an operator.
async fn ask(replica: &Replica, body: &Value) -> anyhow::Result<Answer> {
    let request = replica.client.request(Method::POST, "/api/admin/dlq/replay").header("x-actor", "ann").json(body);
    replica.client.send(request).await
}

/// Starts a batch, and returns it as it was accepted.
async fn start(replica: &Replica, body: &Value) -> anyhow::Result<Value> {
    let answer = ask(replica, body).await?;
    let location = answer.header("location").unwrap_or_default().to_owned();
    let batch = answer.expect(202)?;
    ensure!(location == path(&batch), "{location}");
    Ok(batch)
}

/// The batch, once it has ended.
async fn ended(replica: &Replica, batch: &Value) -> anyhow::Result<Value> {
    replica.client.until(&path(batch), |batch| batch["state"] != "RUNNING").await
}

async fn shown(replica: &Replica, batch: &Value) -> anyhow::Result<Value> {
    replica.client.get(&path(batch)).await?.expect(200)
}

fn path(batch: &Value) -> String {
    format!("/api/admin/dlq/replays/{}", batch["replay_id"].as_str().unwrap())
}

/// Publishes the message of a dead letter again.
async fn publish_again(suite: &TestSuite, letter: &Value) -> anyhow::Result<()> {
    let mut headers = HeaderMap::new();
    for (name, value) in letter["headers"].as_object().context("no headers")? {
        if let Some(text) = value.as_str() {
            headers.insert(name.as_str(), text);
        }
    }
    let subject = letter["subject"].as_str().context("no subject")?;
    suite.publish(&Forged::again(subject, &headers, letter["payload"].as_str().context("no payload")?)).await
}
