//! Parked events, which the broker refused: each decision of an operator is recorded, and later events of the same
//! aggregate go on.

use crate::{
    prelude::*,
    relay::{create_products, room_for_a_short_name},
};

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

/// A state, by whom, and why.
type Change<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// The states that the event entered, in order.
fn changes(entry: &Value) -> anyhow::Result<Vec<Change<'_>>> {
    let history = entry["history"].as_array().context("no history")?;
    ensure!(history.is_sorted_by_key(|change| change["at"].as_str()), "{entry:#}");
    Ok(history.iter().map(|c| (c["state"].as_str().unwrap_or(""), c["by"].as_str(), c["why"].as_str())).collect())
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
    let [_, change] = changes(&discarded)?.try_into().ok().context("written and discarded")?;
    ensure!(change == ("DISCARDED", Some("ann"), Some("the name is not allowed")), "{change:?}");
    suite.becomes(PUBLISHED, 4).await?;
    ensure!(suite.number("select count(*) from inventory.outbox").await? == 0);
    discard(json!({"reason": "again"})).await?.expect(409)?;
    let requeue = async |why: Value| ask(&inventory, Method::POST, &format!("{path}/requeue"), &why).await;
    requeue(json!({"reason": ""})).await?.expect(422)?;
    requeue(json!({"reason": "again"})).await?.expect(409)?;
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
    let frozen = recorded["frozen_set"].clone();
    let expected = json!({"dry_run": true, "matched": 3, "requeued": 0, "ids": parked, "frozen_set": frozen});
    ensure!(frozen.is_string() && recorded == expected, "{recorded:#}");
    suite.execute("update inventory.outbox set attempts = 6, created_at = now() - interval '1 hour' where aggregate_id = 'P-1'").await?;
    for (filter, matched) in [
        (json!({"event_type": "ProductCreated"}), 3),
        (json!({"event_type": "ProductCreated.v1", "aggregate_id": "P-1"}), 1),
        (json!({"event_type": "Product"}), 0),
        (json!({"created_before": "2020-01-01T00:00:00Z"}), 0),
        (json!({"older_than_seconds": 3000}), 1),
        (json!({"older_than_seconds": 4000}), 0),
        (json!({"min_attempts": 5}), 3),
        (json!({"min_attempts": 6}), 1),
    ] {
        let recorded = requeue(json!({"filter": filter, "reason": "r"})).await?.expect(200)?;
        ensure!(recorded["matched"] == matched, "{filter}: {recorded:#}");
    }
    ensure!(suite.number(PUBLISHED).await? == 0 && the_parked(&inventory).await?.len() == 3, "a dry run did it");

    let two = json!({"filter": {}, "dry_run": false, "limit": 2, "reason": "the limit is higher"});
    let done = requeue(two).await?.expect(200)?;
    ensure!(done == json!({"dry_run": false, "matched": 3, "requeued": 2, "ids": parked[..2]}), "{done:#}");
    suite.becomes(PUBLISHED, 2).await?;
    requeue(json!({"filter": {}, "dry_run": false, "reason": "and the rest"})).await?.expect(200)?;
    suite.becomes(PUBLISHED, 4).await?;
    let history = inventory.client.get(&format!("/api/admin/outbox/{}", parked[2])).await?.expect(200)?;
    ensure!(changes(&history)?[1] == ("PENDING", Some("ann"), Some("and the rest")), "{history:#}");
    for (wrong, pointer) in [
        (json!({"filter": {}, "reason": ""}), "/reason"),
        (json!({"filter": {}, "reason": "r", "limit": 10001}), "/limit"),
        (json!({"reason": "r"}), "/filter"),
        (json!({"frozen_set": frozen, "reason": "r"}), "/filter"),
        (json!({"frozen_set": frozen, "filter": {}, "dry_run": false, "reason": "r"}), "/filter"),
        (json!({"frozen_set": Uuid::nil(), "dry_run": false, "reason": "r"}), "/frozen_set"),
    ] {
        let refused = requeue(wrong).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == pointer, "{refused:#}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn exactly_the_events_of_a_dry_run_are_discarded() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    inventory.client.act("/api/admin/relay/pause").await?;
    create_products(&inventory, 0..4).await?;
    park(&suite, "aggregate_id <> 'P-3'").await?;
    let discard = async |body: Value| ask(&inventory, Method::POST, "/api/admin/outbox/discard", &body).await;
    let filter = json!({"event_type": "ProductCreated"});

    let dry = discard(json!({"filter": filter, "reason": "seen", "limit": 2})).await?.expect(200)?;
    let parked = the_parked(&inventory).await?;
    ensure!(parked.len() == 3 && dry["matched"] == 3 && dry["ids"] == json!(parked[..2]), "{dry:#}");
    ensure!(dry["discarded"] == 0, "{dry:#}");
    let at_once = discard(json!({"filter": filter, "dry_run": false, "reason": "all"})).await?.expect(422)?;
    ensure!(at_once["errors"][0]["pointer"] == "/frozen_set", "{at_once:#}");

    // Meanwhile one more is parked that the filter would match, and one of the set is requeued.
    park(&suite, "aggregate_id = 'P-3'").await?;
    let one = format!("/api/admin/outbox/{}/requeue", parked[0]);
    ask(&inventory, Method::POST, &one, &json!({"reason": "this name is"})).await?.expect(200)?;
    let act = json!({"frozen_set": dry["frozen_set"], "dry_run": false, "reason": "these names are not allowed"});
    let done = discard(act.clone()).await?.expect(200)?;
    ensure!(done["matched"] == 2 && done["discarded"] == 1 && done["ids"] == dry["ids"], "{done:#}");
    let entry = inventory.client.get(&format!("/api/admin/outbox/{}", parked[1])).await?.expect(200)?;
    let discarded = ("DISCARDED", Some("ann"), Some("these names are not allowed"));
    ensure!(changes(&entry)?.last() == Some(&discarded), "{entry:#}");
    ensure!(discard(act).await?.expect(200)?["discarded"] == 0, "it was done twice");
    ensure!(the_parked(&inventory).await?.len() == 2, "another event was discarded");
    inventory.client.act("/api/admin/relay/resume").await?;
    suite.becomes(PUBLISHED, 1).await
}

/// A limit below which the names of `renamed` are too long.
async fn refuse_long_names(suite: &TestSuite) -> Test {
    suite.message_size("INVENTORY", room_for_a_short_name(suite).await?).await
}

fn long_name() -> String {
    "é".repeat(200)
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn the_history_of_an_event_says_who_did_what_and_why() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..1).await?;
    suite.becomes(PUBLISHED, 1).await?;
    refuse_long_names(&suite).await?;
    rename(&inventory, "P-0", &long_name()).await?;
    let parked = inventory.client.until_items("/api/admin/outbox?state=PARKED", 1).await?.remove(0);
    let path = format!("/api/admin/outbox/{}", parked["event_id"].as_str().context("no id")?);
    let requeue =
        async |why: &str| ask(&inventory, Method::POST, &format!("{path}/requeue"), &json!({"reason": why})).await;
    requeue("too early").await?.expect(200)?;
    inventory.client.until(&path, |entry| entry["state"] == "PARKED" && entry["attempts"] == 2).await?;
    suite.message_size("INVENTORY", -1).await?;
    requeue("the limit is higher").await?.expect(200)?;
    let entry = inventory.client.until(&path, |entry| entry["state"] == "PUBLISHED").await?;

    let relay = Some(inventory.app.participant().holder.as_str());
    let [written, first, early, second, requeued, published] =
        changes(&entry)?.try_into().ok().with_context(|| format!("{entry:#}"))?;
    ensure!(written == ("PENDING", None, None) && published == ("PUBLISHED", relay, None), "{entry:#}");
    ensure!(early == ("PENDING", Some("ann"), Some("too early")), "{entry:#}");
    ensure!(requeued == ("PENDING", Some("ann"), Some("the limit is higher")), "{entry:#}");
    for refused in [first, second] {
        let is_clear = refused.2.is_some_and(|why| why.contains("is larger than its stream accepts"));
        ensure!(refused.0 == "PARKED" && refused.1 == relay && is_clear, "{entry:#}");
    }
    ensure!(entry["history"][0]["at"] == entry["created_at"] && entry["history"][5]["at"] == entry["published_at"]);
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn parked_events_are_tried_again_after_ever_longer_waits() -> Test {
    let tuning = Tuning { outbox_parked_replay_after: Some(Duration::from_secs(3600)), ..Tuning::default() };
    let (suite, inventory) = TestSuite::alone_with(tuning, INVENTORY).await?;
    create_products(&inventory, 0..2).await?;
    suite.becomes(PUBLISHED, 2).await?;
    refuse_long_names(&suite).await?;
    for sku in ["P-0", "P-1"] {
        rename(&inventory, sku, &long_name()).await?;
    }
    inventory.client.until_items("/api/admin/outbox?state=PARKED", 2).await?;
    let an_hour_passes = "update inventory.outbox set next_attempt_at = next_attempt_at - interval '61 minutes'";
    let state = async |sku: &str, attempts: i64| {
        let state = format!("state = 'PARKED' and attempts = {attempts} and aggregate_id = '{sku}'");
        suite.becomes(format!("select count(*) from inventory.outbox where {state}"), 1).await
    };
    suite.execute(format!("{an_hour_passes} where aggregate_id = 'P-0'")).await?;
    state("P-0", 2).await?;
    suite.message_size("INVENTORY", -1).await?;

    // Both have waited for an hour: after one refusal it is long enough, after two it is not.
    suite.execute(an_hour_passes).await?;
    suite.becomes(PUBLISHED, 3).await?;
    state("P-0", 2).await?;
    suite.execute(an_hour_passes).await?;
    suite.becomes(PUBLISHED, 4).await?;
    let published = inventory.client.items("/api/admin/outbox?state=PUBLISHED").await?;
    let entry = published.iter().find(|event| event["aggregate_id"] == "P-0" && event["aggregate_sequence"] == 2);
    let entry = entry.and_then(|entry| entry["event_id"].as_str()).context("not published")?;
    let entry = inventory.client.get(&format!("/api/admin/outbox/{entry}")).await?.expect(200)?;
    let why = ["parked for long enough, after refusal 1", "parked for long enough, after refusal 2"];
    let by_relay = |n: usize| ("PENDING", Some("relay"), Some(why[n]));
    let changes = changes(&entry)?;
    ensure!(changes.len() == 6 && changes[2] == by_relay(0) && changes[4] == by_relay(1), "{entry:#}");
    Ok(())
}
