//! Events that the broker refused too often, and what an operator does about them: each decision is written down, and the
//! later events of the same aggregate go on.

use anyhow::{Context, ensure};
use contracts::INVENTORY;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{Answer, Replica, Stage};

use crate::Test;

const PUBLISHED: &str = "select count(*) from inventory.outbox_published";

async fn published(stage: &Stage, events: i64) -> Test {
    stage.becomes(PUBLISHED, events).await
}

async fn relay(replica: &Replica, verb: &str) -> Test {
    replica.client.post(&format!("/api/admin/relay/{verb}"), &json!({})).await?.expect(200).map(drop)
}

async fn create(inventory: &Replica, skus: &[&str]) -> Test {
    for sku in skus {
        inventory.client.create_product(sku, 1, 1).await?.expect(201)?;
    }
    Ok(())
}

async fn rename(inventory: &Replica, sku: &str, name: &str) -> Test {
    let patch = inventory.client.request(Method::PATCH, &format!("/api/products/{sku}"));
    inventory.client.send(patch.json(&json!({"name": name}))).await?.expect(200).map(drop)
}

/// As the relay does after the last refusal.
async fn park(stage: &Stage, events: &'static str) -> Test {
    let park = "update inventory.outbox set state = 'PARKED', attempts = 5, last_error = 'too large' where ";
    let parked = stage.execute(format!("{park}{events}")).await?;
    ensure!(parked > 0, "there is nothing to park");
    Ok(())
}

async fn the_parked(replica: &Replica) -> anyhow::Result<Vec<String>> {
    let page = replica.client.get("/api/admin/outbox?state=PARKED").await?.expect(200)?;
    let ids = page["items"].as_array().into_iter().flatten().filter_map(|entry| entry["event_id"].as_str());
    Ok(ids.map(str::to_owned).rev().collect())
}

/// As somebody who gives their name.
async fn ask(replica: &Replica, method: Method, path: &str, body: &Value) -> anyhow::Result<Answer> {
    let request = replica.client.request(method, path).header("x-actor", "ann").json(body);
    replica.client.send(request).await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_discarded_event_is_never_published_its_followers_are() -> Test {
    let (stage, inventory) = Stage::alone(INVENTORY).await?;
    create(&inventory, &["P-0", "P-1"]).await?;
    published(&stage, 2).await?;
    relay(&inventory, "pause").await?;
    rename(&inventory, "P-0", "too long a name").await?;
    rename(&inventory, "P-0", "a follower").await?;
    rename(&inventory, "P-1", "another").await?;
    park(&stage, "payload::text like '%too long%'").await?;
    relay(&inventory, "resume").await?;
    published(&stage, 3).await?;
    let [parked] = the_parked(&inventory).await?.try_into().ok().context("one event is parked")?;
    let path = format!("/api/admin/outbox/{parked}");
    let discard = async |body: Value| ask(&inventory, Method::DELETE, &path, &body).await;

    discard(json!({"reason": ""})).await?.expect(422)?;
    let discarded = discard(json!({"reason": "nobody may be called that"})).await?.expect(200)?;
    ensure!(discarded["state"] == "DISCARDED" && discarded["attempts"] == 5, "{discarded:#}");
    ensure!(discarded["payload"]["product"]["name"] == "too long a name", "{discarded:#}");
    let [action] = discarded["actions"].as_array().context("no actions")?.as_slice() else {
        anyhow::bail!("{discarded:#}");
    };
    let told = (&action["actor"], &action["action"], &action["reason"]);
    ensure!(told == (&json!("ann"), &json!("DISCARD"), &json!("nobody may be called that")), "{action}");
    published(&stage, 4).await?;
    ensure!(stage.number("select count(*) from inventory.outbox").await? == 0);
    discard(json!({"reason": "again"})).await?.expect(409)?;
    ask(&inventory, Method::POST, &format!("{path}/requeue"), &json!({})).await?.expect(409)?;
    let list = inventory.client.get("/api/admin/outbox?state=DISCARDED").await?.expect(200)?;
    ensure!(list["items"][0]["event_id"] == parked.as_str() && list["items"][1].is_null(), "{list:#}");
    let all = inventory.client.get("/api/admin/outbox").await?.expect(200)?;
    ensure!(all["items"].as_array().is_some_and(|all| all.len() == 5), "{all:#}");
    Ok(())
}

#[suite_tests::test]
async fn an_order_ends_although_its_first_event_was_discarded() -> Test {
    let (stage, suite) = Stage::selling(100, 10).await?;
    relay(&suite.order, "pause").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    ensure!(suite.cancel(&placed).await? == 202);
    stage.execute("update orders.outbox set state = 'PARKED' where event_type = 'OrderCreated.v1'").await?;
    relay(&suite.order, "resume").await?;
    let [parked] = the_parked(&suite.order).await?.try_into().ok().context("one event is parked")?;
    let path = format!("/api/admin/outbox/{parked}");
    ask(&suite.order, Method::DELETE, &path, &json!({"reason": "cancelled anyway"})).await?.expect(200)?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn parked_events_are_requeued_in_bulk_after_a_dry_run() -> Test {
    let (stage, inventory) = Stage::alone(INVENTORY).await?;
    relay(&inventory, "pause").await?;
    create(&inventory, &["P-0", "P-1", "P-2"]).await?;
    rename(&inventory, "P-2", "renamed").await?;
    park(&stage, "event_type = 'ProductCreated.v1'").await?;
    relay(&inventory, "resume").await?;
    let parked = the_parked(&inventory).await?;
    ensure!(parked.len() == 3, "{parked:?}");
    let requeue = async |body: Value| ask(&inventory, Method::POST, "/api/admin/outbox/requeue", &body).await;

    let told = requeue(json!({"filter": {}, "reason": "the limit is higher"})).await?.expect(200)?;
    ensure!(told == json!({"dry_run": true, "matched": 3, "requeued": 0, "event_ids": parked}), "{told:#}");
    for (filter, matched) in [
        (json!({"event_type": "ProductCreated"}), 3),
        (json!({"event_type": "ProductCreated.v1", "aggregate_id": "P-1"}), 1),
        (json!({"event_type": "Product"}), 0),
        (json!({"created_before": "2020-01-01T00:00:00Z"}), 0),
    ] {
        let told = requeue(json!({"filter": filter, "reason": "r"})).await?.expect(200)?;
        ensure!(told["matched"] == matched, "{filter}: {told:#}");
    }
    ensure!(stage.number(PUBLISHED).await? == 0 && the_parked(&inventory).await?.len() == 3, "a dry run did it");

    let two = json!({"filter": {}, "dry_run": false, "limit": 2, "reason": "the limit is higher"});
    let done = requeue(two).await?.expect(200)?;
    ensure!(done == json!({"dry_run": false, "matched": 3, "requeued": 2, "event_ids": parked[..2]}), "{done:#}");
    published(&stage, 2).await?;
    requeue(json!({"filter": {}, "dry_run": false, "reason": "and the rest"})).await?.expect(200)?;
    published(&stage, 4).await?;
    let history = inventory.client.get(&format!("/api/admin/outbox/{}", parked[2])).await?.expect(200)?;
    let action = &history["actions"][0];
    ensure!(
        action["actor"] == "ann" && action["action"] == "REQUEUE" && action["reason"] == "and the rest",
        "{history:#}"
    );
    for (wrong, pointer) in [
        (json!({"filter": {}, "reason": ""}), "/reason"),
        (json!({"filter": {}, "reason": "r", "limit": 1001}), "/limit"),
    ] {
        let refused = requeue(wrong).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == pointer, "{refused:#}");
    }
    Ok(())
}
