//! Dead letters: replayed one by one or in batches, to the failed step only; what a replay would come to; and what
//! is kept of all of it.

mod auto_replay;
mod batch;
mod batch_ends;
mod dry_run;
mod forgotten;
mod single;

use std::time::Duration;

use anyhow::{Context, ensure};
use async_nats::{HeaderMap, jetstream::message::PublishMessage};
use contracts::{INVENTORY, ORDER, catalogue::ProductCreated};
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{Answer, Forged, Replica, Stage, Tuning};
use testkit::eventually;
use uuid::Uuid;

use crate::messages::product;

const LIMIT: Duration = Duration::from_secs(30);

const STEP: &str = "project_product_created";

/// A failure of the step is a dead letter at once, and no breaker gets between.
fn at_once() -> Tuning {
    Tuning { resilience: "project_product_created.attempts=1", breakers_enabled: false, ..Tuning::default() }
}

/// A product that order's view does not take while [`forbid`] holds.
fn unwelcome(n: usize) -> ProductCreated {
    product(&format!("X-{n}"))
}

/// Makes the step fail for the SKUs that are like this.
async fn forbid(stage: &Stage, like: &str) -> anyhow::Result<()> {
    let sql = format!("alter table orders.product_view add constraint forbidden check (sku not like '{like}')");
    stage.execute(sql).await?;
    Ok(())
}

/// The cause is gone.
async fn mend(stage: &Stage) -> anyhow::Result<()> {
    stage.execute("alter table orders.product_view drop constraint forbidden").await?;
    Ok(())
}

/// Holds up every replay of the step until it is dropped, though not for longer than the lock timeout.
async fn hold_up(stage: &Stage) -> anyhow::Result<sqlx::Transaction<'static, sqlx::Postgres>> {
    let mut transaction = stage.pool.begin().await?;
    sqlx::query("lock table orders.product_view in exclusive mode").execute(&mut *transaction).await?;
    Ok(transaction)
}

/// Makes `n` dead letters of the step, whose cause goes on; returns them oldest first.
async fn make_letters(stage: &Stage, order: &Replica, n: usize) -> anyhow::Result<Vec<Value>> {
    forbid(stage, "X%").await?;
    let jetstream = stage.jetstream().await?;
    for n in 0..n {
        stage.publish_to(&jetstream, &Forged::new(INVENTORY, Uuid::now_v7(), &unwelcome(n))).await?;
    }
    eventually(LIMIT, async || {
        let letters = letters(order, &format!("step={STEP}")).await?;
        ensure!(letters.len() == n, "{} dead letters", letters.len());
        anyhow::Ok(Some(letters))
    })
    .await
}

/// A stage with so many dead letters of order, whose cause is gone.
async fn mended(n: usize) -> anyhow::Result<(Stage, Replica, Vec<Value>)> {
    let (stage, order) = Stage::alone_with(at_once(), ORDER).await?;
    let made = make_letters(&stage, &order, n).await?;
    mend(&stage).await?;
    Ok((stage, order, made))
}

/// The dead letters of a service that a query finds, oldest first.
async fn letters(replica: &Replica, query: &str) -> anyhow::Result<Vec<Value>> {
    let page = replica.client.get(&format!("/api/admin/dlq?limit=200&{query}")).await?.expect(200)?;
    let mut letters = page["items"].as_array().context("no items")?.clone();
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
    replica.client.post(&format!("/api/admin/dlq/{}/replay", id(letter)), &json!({"reason": "mended"})).await
}

/// Asks for a batch (or a dry run), as somebody who gives their name.
async fn ask(replica: &Replica, body: &Value) -> anyhow::Result<Answer> {
    let request = replica.client.request(Method::POST, "/api/admin/dlq/replay").header("x-actor", "ann").json(body);
    replica.client.send(request).await
}

/// Starts a batch, and returns it as it was accepted.
async fn start(replica: &Replica, body: &Value) -> anyhow::Result<Value> {
    let answer = ask(replica, body).await?;
    let location = answer.header("location").unwrap_or_default().to_owned();
    let batch = answer.expect(202)?;
    ensure!(location == format!("/api/admin/dlq/replays/{}", batch["replay_id"].as_str().unwrap()), "{location}");
    Ok(batch)
}

/// The batch, once it has ended.
async fn ended(replica: &Replica, batch: &Value) -> anyhow::Result<Value> {
    eventually(LIMIT, async || {
        let batch = shown(replica, batch).await?;
        ensure!(batch["state"] != "RUNNING", "{batch:#}");
        anyhow::Ok(Some(batch))
    })
    .await
}

async fn shown(replica: &Replica, batch: &Value) -> anyhow::Result<Value> {
    let path = format!("/api/admin/dlq/replays/{}", batch["replay_id"].as_str().unwrap());
    replica.client.get(&path).await?.expect(200)
}

/// Publishes what a dead letter holds once more.
async fn publish_again(stage: &Stage, letter: &Value) -> anyhow::Result<()> {
    let mut headers = HeaderMap::new();
    for (name, value) in letter["headers"].as_object().context("no headers")? {
        if let Some(text) = value.as_str().filter(|_| !name.starts_with("Nats-")) {
            headers.insert(name.as_str(), text);
        }
    }
    let payload = letter["payload"].as_str().context("no payload")?.to_owned();
    publish(stage, letter["subject"].as_str().context("no subject")?, headers, payload).await
}

async fn publish(stage: &Stage, subject: &str, headers: HeaderMap, body: impl Into<Vec<u8>>) -> anyhow::Result<()> {
    let message = PublishMessage::build().payload(body.into().into()).headers(headers);
    let message = message.message_id(Uuid::now_v7().to_string());
    stage.jetstream().await?.send_publish(subject.to_owned(), message).await?.await?;
    Ok(())
}
