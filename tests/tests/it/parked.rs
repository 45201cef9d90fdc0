//! Parked events, which the broker refused too often: each decision of an operator is recorded, and later events of the same
//! aggregate go on.

use crate::{prelude::*, relay::create_products};

const PUBLISHED: &str = "select count(*) from inventory.outbox_published";

async fn rename(inventory: &Replica, sku: &str, name: &str) -> Test {
    inventory.client.patch(&format!("/api/products/{sku}"), &json!({"name": name})).await?.expect(200).map(drop)
}

/// As the relay does after the last refusal.
async fn park(suite: &TestSuite, events: &'static str) -> Test {
    let park = "update inventory.outbox set state = 'PARKED', attempts = 5, last_error = 'too large' where ";
    let parked = suite.execute(format!("{park}{events}")).await?;
    ensure!(parked > 0, "there is nothing to park");
    Ok(())
}

async fn the_parked(replica: &Replica) -> anyhow::Result<Vec<String>> {
    let parked = replica.client.items("/api/admin/outbox?state=PARKED").await?;
    Ok(parked.iter().rev().filter_map(|event| event["event_id"].as_str()).map(str::to_owned).collect())
}

/// Under the name of an operator.
async fn ask(replica: &Replica, method: Method, path: &str, body: &Value) -> anyhow::Result<Answer> {
    let request = replica.client.request(method, path).header("x-actor", "ann").json(body);
    replica.client.send(request).await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_discarded_event_is_skipped_and_its_followers_published() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..2).await?;
    suite.becomes(PUBLISHED, 2).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    rename(&inventory, "P-0", "too long a name").await?;
    rename(&inventory, "P-0", "a follower").await?;
    rename(&inventory, "P-1", "another").await?;
    park(&suite, "payload::text like '%too long%'").await?;
    inventory.client.act("/api/admin/relay/resume").await?;
    suite.becomes(PUBLISHED, 3).await?;
    let [parked] = the_parked(&inventory).await?.try_into().ok().context("one event is parked")?;
    let path = format!("/api/admin/outbox/{parked}");
    let discard = async |body: Value| ask(&inventory, Method::DELETE, &path, &body).await;

    discard(json!({"reason": ""})).await?.expect(422)?;
    let discarded = discard(json!({"reason": "the name is not allowed"})).await?.expect(200)?;
    ensure!(discarded["state"] == "DISCARDED" && discarded["attempts"] == 5, "{discarded:#}");
    ensure!(discarded["payload"]["product"]["name"] == "too long a name", "{discarded:#}");
    let [action] = discarded["actions"].as_array().context("no actions")?.as_slice() else {
        anyhow::bail!("{discarded:#}");
    };
    let recorded = (&action["actor"], &action["action"], &action["reason"]);
    ensure!(recorded == (&json!("ann"), &json!("DISCARD"), &json!("the name is not allowed")), "{action}");
    suite.becomes(PUBLISHED, 4).await?;
    ensure!(suite.number("select count(*) from inventory.outbox").await? == 0);
    discard(json!({"reason": "again"})).await?.expect(409)?;
    ask(&inventory, Method::POST, &format!("{path}/requeue"), &json!({})).await?.expect(409)?;
    let list = inventory.client.items("/api/admin/outbox?state=DISCARDED").await?;
    ensure!(list.len() == 1 && list[0]["event_id"] == parked.as_str(), "{list:#?}");
    let all = inventory.client.items("/api/admin/outbox").await?;
    ensure!(all.len() == 5, "{all:#?}");
    Ok(())
}

#[suite_tests::test]
async fn an_order_ends_although_its_first_event_was_discarded() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    ensure!(participants.cancel(&placed).await? == 202);
    suite.execute("update orders.outbox set state = 'PARKED' where event_type = 'OrderCreated.v1'").await?;
    participants.order.client.act("/api/admin/relay/resume").await?;
    let [parked] = the_parked(&participants.order).await?.try_into().ok().context("one event is parked")?;
    let path = format!("/api/admin/outbox/{parked}");
    ask(&participants.order, Method::DELETE, &path, &json!({"reason": "cancelled anyway"})).await?.expect(200)?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn parked_events_are_requeued_in_bulk_after_a_dry_run() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    create_products(&inventory, 0..3).await?;
    rename(&inventory, "P-2", "renamed").await?;
    park(&suite, "event_type = 'ProductCreated.v1'").await?;
    inventory.client.act("/api/admin/relay/resume").await?;
    let parked = the_parked(&inventory).await?;
    ensure!(parked.len() == 3, "{parked:?}");
    let requeue = async |body: Value| ask(&inventory, Method::POST, "/api/admin/outbox/requeue", &body).await;

    let recorded = requeue(json!({"filter": {}, "reason": "the limit is higher"})).await?.expect(200)?;
    ensure!(recorded == json!({"dry_run": true, "matched": 3, "requeued": 0, "event_ids": parked}), "{recorded:#}");
    for (filter, matched) in [
        (json!({"event_type": "ProductCreated"}), 3),
        (json!({"event_type": "ProductCreated.v1", "aggregate_id": "P-1"}), 1),
        (json!({"event_type": "Product"}), 0),
        (json!({"created_before": "2020-01-01T00:00:00Z"}), 0),
    ] {
        let recorded = requeue(json!({"filter": filter, "reason": "r"})).await?.expect(200)?;
        ensure!(recorded["matched"] == matched, "{filter}: {recorded:#}");
    }
    ensure!(suite.number(PUBLISHED).await? == 0 && the_parked(&inventory).await?.len() == 3, "a dry run did it");

    let two = json!({"filter": {}, "dry_run": false, "limit": 2, "reason": "the limit is higher"});
    let done = requeue(two).await?.expect(200)?;
    ensure!(done == json!({"dry_run": false, "matched": 3, "requeued": 2, "event_ids": parked[..2]}), "{done:#}");
    suite.becomes(PUBLISHED, 2).await?;
    requeue(json!({"filter": {}, "dry_run": false, "reason": "and the rest"})).await?.expect(200)?;
    suite.becomes(PUBLISHED, 4).await?;
    let history = inventory.client.get(&format!("/api/admin/outbox/{}", parked[2])).await?.expect(200)?;
    let action = &history["actions"][0];
    ensure!(action["actor"] == "ann" && action["action"] == "REQUEUE", "{history:#}");
    ensure!(action["reason"] == "and the rest", "{history:#}");
    for (wrong, pointer) in [
        (json!({"filter": {}, "reason": ""}), "/reason"),
        (json!({"filter": {}, "reason": "r", "limit": 1001}), "/limit"),
    ] {
        let refused = requeue(wrong).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == pointer, "{refused:#}");
    }
    Ok(())
}
