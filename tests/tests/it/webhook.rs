//! The webhook: published events are posted to an endpoint, signed, at least once, of each aggregate in order, and none is skipped.

use std::collections::{BTreeMap, BTreeSet};

use suite_tests::{Received, Receiver, WEBHOOK_SECRET};
use testkit::free_port;

use crate::{prelude::*, relay::create_products};

/// The settings of a webhook of this address, with short waits.
pub(crate) fn to(url: &str) -> Vec<(&'static str, String)> {
    let settings = [
        ("--webhook-url", url),
        ("--webhook-secret", WEBHOOK_SECRET),
        ("--webhook-attempts", "3"),
        ("--webhook-retry-initial", "10ms"),
        ("--webhook-lease", "3s"),
    ];
    settings.map(|(name, value)| (name, value.to_owned())).to_vec()
}

fn tuned(url: &str) -> Tuning {
    Tuning { webhook: to(url), ..Tuning::default() }
}

/// Inventory with a webhook, which has begun.
async fn posting_to(url: &str) -> anyhow::Result<(TestSuite, Replica)> {
    let (suite, inventory) = TestSuite::alone_with(tuned(url), INVENTORY).await?;
    begins(&inventory.client).await?;
    Ok((suite, inventory))
}

async fn begins(client: &Client) -> Test {
    client.until("/api/admin/webhook", |webhook| webhook["active"] == true).await.map(drop)
}

async fn rename(client: &Client, sku: &str, name: &str) -> Test {
    client.patch(&format!("/api/products/{sku}"), &json!({"name": name})).await?.expect(200).map(drop)
}

/// What operators see.
async fn webhook(client: &Client) -> anyhow::Result<Value> {
    client.get("/api/admin/webhook").await?.expect(200)
}

async fn delivers_all(client: &Client) -> Test {
    let done = |webhook: &Value| webhook["oldest_seconds"].is_null() && webhook["ordinal"] == webhook["last_ordinal"];
    client.until("/api/admin/webhook", done).await.map(drop)
}

/// Each event came once, and those of an aggregate in the order of their numbers, from 1.
fn once_and_in_order(accepted: &[Received]) -> Test {
    let ids: BTreeSet<_> = accepted.iter().map(Received::id).collect();
    ensure!(ids.len() == accepted.len(), "an event came twice: {accepted:#?}");
    in_order(accepted)
}

/// The same, where duplicates are allowed.
fn in_order(accepted: &[Received]) -> Test {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for one in accepted.iter().filter(|one| seen.insert(one.id())) {
        let sequence: i64 = one.event["sequence"].as_str().context("no sequence")?.parse()?;
        let before = last.insert(one.aggregate(), sequence).unwrap_or(0);
        ensure!(sequence == before + 1, "{} follows {before} of {}", sequence, one.aggregate());
    }
    Ok(())
}

fn name_of(event: &Value) -> &str {
    event["data"]["product"]["name"].as_str().or(event["data"]["name"].as_str()).unwrap_or_default()
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn events_arrive_signed_once_and_in_order() -> Test {
    let receiver = Receiver::start().await?;
    let (suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..5).await?;
    for n in 0..20 {
        rename(&inventory.client, &format!("P-{}", n % 5), &format!("name {n}")).await?;
    }
    let accepted = receiver.accepts(25).await?;
    once_and_in_order(&accepted)?;
    for one in &accepted {
        let row = sqlx::query_as::<_, (Value, String, Value)>(
            "select payload, event_type, headers from inventory.outbox_published where event_id = $1::text::uuid",
        );
        let (payload, event_type, headers) = row.bind(one.id()).fetch_one(&suite.pool).await?;
        ensure!(one.event["data"] == payload && one.event["type"] == event_type.as_str(), "{one:#?}");
        ensure!(one.event["source"] == headers["ce-source"], "{one:#?}");
    }
    delivers_all(&inventory.client).await
}

#[suite_tests::test]
async fn cards_and_addresses_are_not_posted() -> Test {
    let receiver = Receiver::start().await?;
    let (suite, participants) = TestSuite::selling_with(tuned(&receiver.url), 100, 10).await?;
    for replica in participants.all() {
        begins(&replica.client).await?;
    }
    participants.place(&[("A", 1)], "tok_visa").await?;
    suite.all_confirmed(1).await?;
    eventually(async || {
        let received = receiver.accepted()?;
        let is =
            |kind: &str| received.iter().any(|one| one.event["type"].as_str().is_some_and(|t| t.starts_with(kind)));
        ensure!(is("OrderCreated") && is("StockReserved") && is("Payment"), "{received:#?}");
        anyhow::Ok(())
    })
    .await?;
    for one in receiver.accepted()? {
        let text = one.event.to_string();
        ensure!(!text.contains("tok_visa") && !text.contains("shipping_address"), "{text}");
    }
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_outage_delays_events_and_loses_none() -> Test {
    let address = format!("127.0.0.1:{}", free_port());
    let (suite, inventory) = posting_to(&format!("http://{address}/hook")).await?;
    create_products(&inventory, 0..3).await?;
    let down = |webhook: &Value| webhook["last_failure"].is_string();
    inventory.client.until("/api/admin/webhook", down).await?;
    let receiver = Receiver::at(&address).await?;
    receiver.answer(|_| 503);
    for n in 0..9 {
        rename(&inventory.client, &format!("P-{}", n % 3), &format!("name {n}")).await?;
    }
    suite.becomes("select count(*) from inventory.outbox_published", 12).await?;
    eventually(async || receiver.received().is_ok_and(|received| received.len() >= 3)).await?;
    let state = webhook(&inventory.client).await?;
    ensure!(state["waiting"] == 0 && state["parked"] == 0, "an outage was counted: {state:#}");
    ensure!(state["oldest_seconds"].as_f64().is_some_and(|age| age > 0.0), "{state:#}");
    receiver.answer(|_| 204);
    once_and_in_order(&receiver.accepts(12).await?)?;
    delivers_all(&inventory.client).await?;
    ensure!(webhook(&inventory.client).await?["last_failure"].is_null());
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_failing_event_holds_back_its_own_aggregate_only() -> Test {
    let receiver = Receiver::start().await?;
    receiver.answer(|event| if event["subject"] == "P-0" { 500 } else { 204 });
    let (_suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..2).await?;
    for n in 0..3 {
        rename(&inventory.client, "P-0", &format!("name {n}")).await?;
        rename(&inventory.client, "P-1", &format!("name {n}")).await?;
    }
    let accepted = receiver.accepts(4).await?;
    ensure!(accepted.iter().all(|one| one.aggregate() == "P-1"), "{accepted:#?}");
    let parked = inventory.client.until_items("/api/admin/webhook/events?state=PARKED", 1).await?.remove(0);
    ensure!(parked["attempts"] == 3 && parked["aggregate_sequence"] == 1, "{parked:#}");
    ensure!(parked["last_error"] == "the endpoint answered 500 Internal Server Error", "{parked:#}");
    let failed = receiver.received()?.into_iter().filter(|one| one.status == 500).count();
    ensure!(failed == 3, "it was posted {failed} times");
    let waiting = inventory.client.until_items("/api/admin/webhook/events?state=PENDING", 3).await?;
    ensure!(waiting.iter().all(|event| event["aggregate_id"] == "P-0"), "{waiting:#?}");
    receiver.answer(|_| 204);
    requeue(&inventory.client, &parked).await?;
    once_and_in_order(&receiver.accepts(8).await?)?;
    delivers_all(&inventory.client).await
}

pub(crate) async fn requeue(client: &Client, event: &Value) -> Test {
    let path = format!("/api/admin/webhook/events/{}/requeue", event["event_id"].as_str().context("no id")?);
    let request =
        client.request(Method::POST, &path).header("x-actor", "ann").json(&json!({"reason": "it is repaired"}));
    client.send(request).await?.expect(200).map(drop)
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_refused_event_is_parked_at_once_and_discarded_or_requeued() -> Test {
    let receiver = Receiver::start().await?;
    receiver.answer(|event| if name_of(event) == "bad" { 422 } else { 204 });
    let (suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..2).await?;
    for sku in ["P-0", "P-1"] {
        rename(&inventory.client, sku, "bad").await?;
        rename(&inventory.client, sku, "good").await?;
    }
    let parked = inventory.client.until_items("/api/admin/webhook/events?state=PARKED", 2).await?;
    ensure!(parked.iter().all(|event| event["attempts"] == 1), "{parked:#?}");
    inventory.client.until_items("/api/admin/webhook/events?state=PENDING", 2).await?;
    // In a later batch.
    rename(&inventory.client, "P-0", "later").await?;
    inventory.client.until_items("/api/admin/webhook/events?state=PENDING", 3).await?;
    let state = webhook(&inventory.client).await?;
    ensure!(state["parked"] == 2 && state["waiting"] == 3, "{state:#}");

    let path = format!("/api/admin/webhook/events/{}", parked[0]["event_id"].as_str().context("no id")?);
    let discard = async |body: Value| {
        let request = inventory.client.request(Method::DELETE, &path).header("x-actor", "ann").json(&body);
        inventory.client.send(request).await
    };
    discard(json!({"reason": ""})).await?.expect(422)?;
    discard(json!({"reason": "it is not needed"})).await?.expect(200)?;
    discard(json!({"reason": "again"})).await?.expect(404)?;
    let waiting = inventory.client.items("/api/admin/webhook/events?state=PENDING").await?;
    if let Some(follower) = waiting.iter().find(|event| event["aggregate_id"] == "P-1") {
        let path = format!("/api/admin/webhook/events/{}/requeue", follower["event_id"].as_str().context("no id")?);
        inventory.client.post(&path, &json!({"reason": "too early"})).await?.expect(409)?;
    }
    // Both products, and the followers of the discarded event.
    receiver.accepts(4).await?;

    receiver.answer(|_| 204);
    requeue(&inventory.client, &parked[1]).await?;
    let accepted = receiver.accepts(6).await?;
    let discarded = parked[0]["event_id"].as_str().context("no id")?;
    ensure!(accepted.iter().all(|one| one.id() != discarded), "a discarded event was posted");
    let of_second: Vec<_> = accepted.into_iter().filter(|one| one.aggregate() == "P-1").collect();
    once_and_in_order(&of_second)?;
    delivers_all(&inventory.client).await?;
    let journal = sqlx::query_as::<_, (String, String, Option<String>, i16)>(
        "select actor, action, reason, status from saga.operator_action where status = 200 order by action_id",
    );
    let journal = journal.fetch_all(&suite.pool).await?;
    let [(who, what, why, _), (_, then, ..)] = &journal[..] else { anyhow::bail!("{journal:?}") };
    ensure!((who.as_str(), why.as_deref()) == ("ann", Some("it is not needed")), "{journal:?}");
    ensure!(*what == format!("DELETE {path}") && then.ends_with("/requeue"), "{journal:?}");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_killed_service_posts_again_what_it_had_not_noted() -> Test {
    let receiver = Receiver::start().await?;
    // It takes the event, and the service never learns that.
    receiver.answer(|event| if event["subject"] == "P-1" { 0 } else { 204 });
    let suite = TestSuite::new().await?;
    let settings = [
        ("WEBHOOK_URL", receiver.url.as_str()),
        ("WEBHOOK_SECRET", WEBHOOK_SECRET),
        ("WEBHOOK_LEASE", "1s"),
        ("WEBHOOK_TIMEOUT", "60s"),
    ];
    let first = Running::start(&suite, INVENTORY, &settings).await?;
    begins(&first.client).await?;
    for n in 0..3 {
        first.client.create_product(&format!("P-{n}"), 1, 1).await?.expect(201)?;
    }
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    eventually(async || receiver.received().is_ok_and(|all| all.iter().any(|one| one.status == 0))).await?;
    let Running { mut process, .. } = first;
    process.kill();
    receiver.answer(|_| 204);
    let second = Running::start(&suite, INVENTORY, &settings).await?;
    delivers_all(&second.client).await?;
    let received = receiver.received()?;
    let times = |sku: &str| received.iter().filter(|one| one.aggregate() == sku).count();
    ensure!(times("P-1") == 2, "the event that was not noted came {} times", times("P-1"));
    ensure!((1..=2).contains(&times("P-0")) && (1..=2).contains(&times("P-2")), "{received:#?}");
    in_order(&received)
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn of_two_replicas_one_posts_and_the_other_takes_over() -> Test {
    let receiver = Receiver::start().await?;
    let (suite, first) = posting_to(&receiver.url).await?;
    let second = suite.start(INVENTORY).await?;
    create_products(&first, 0..10).await?;
    create_products(&second, 10..20).await?;
    once_and_in_order(&receiver.accepts(20).await?)?;
    let before = webhook(&second.client).await?;
    let (gone, stays) = match before["holder"] == first.app.participant().holder.as_str() {
        true => (first, second),
        false => (second, first),
    };
    gone.stop().await;
    create_products(&stays, 20..30).await?;
    once_and_in_order(&receiver.accepts(30).await?)?;
    let after = webhook(&stays.client).await?;
    ensure!(after["epoch"].as_i64() > before["epoch"].as_i64(), "{after:#}");
    ensure!(after["holder"] == stays.app.participant().holder.as_str(), "{after:#}");
    Ok(())
}

/// Its place in the outbox was given before those of later events, which were published and posted first.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_event_that_commits_late_is_not_skipped() -> Test {
    let receiver = Receiver::start().await?;
    let (suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..1).await?;
    receiver.accepts(1).await?;
    let id = Uuid::now_v7();
    let mut late = suite.pool.begin().await?;
    let copy = sqlx::query(
        "insert into inventory.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload)
        select $1, aggregate_type, 'P-late', 1, event_type, subject, headers, payload from inventory.outbox_published",
    );
    copy.bind(id).execute(&mut *late).await?;
    create_products(&inventory, 1..4).await?;
    receiver.accepts(4).await?;
    delivers_all(&inventory.client).await?;
    late.commit().await?;
    let accepted = receiver.accepts(5).await?;
    ensure!(accepted.last().is_some_and(|last| last.id() == id.to_string()), "{accepted:#?}");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn events_are_posted_from_the_archive() -> Test {
    let receiver = Receiver::start().await?;
    receiver.answer(|_| 503);
    let (suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..3).await?;
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    // As housekeeping does a day later.
    suite
        .execute(
            "do $$ declare day regclass := (select tableoid from inventory.outbox_published limit 1); begin
                execute format('alter table inventory.outbox_published detach partition %s', day);
                execute format('alter table %s rename to _event_archive_%s', day, to_char(now(), 'YYYYMMDD'));
            end $$",
        )
        .await?;
    ensure!(suite.number("select count(*) from inventory.outbox_published").await? == 0, "nothing was archived");
    for n in 0..3 {
        rename(&inventory.client, &format!("P-{n}"), "renamed").await?;
    }
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    receiver.answer(|_| 204);
    once_and_in_order(&receiver.accepts(6).await?)
}

/// An event that is published again because the broker has lost it keeps its place, and is not posted again.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn it_begins_at_the_end_and_republished_events_are_not_posted_again() -> Test {
    let receiver = Receiver::start().await?;
    let (mut suite, inventory) = TestSuite::alone(INVENTORY).await?;
    create_products(&inventory, 0..3).await?;
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    inventory.stop().await;
    suite.tuning.webhook = to(&receiver.url);
    let inventory = suite.start(INVENTORY).await?;
    begins(&inventory.client).await?;
    create_products(&inventory, 3..4).await?;
    receiver.accepts(1).await?;
    suite.publish_all_again(INVENTORY).await?;
    suite.becomes("select count(*) from inventory.outbox", 0).await?;
    create_products(&inventory, 4..5).await?;
    let accepted = receiver.accepts(2).await?;
    ensure!(accepted.iter().map(Received::aggregate).eq(["P-3", "P-4"]), "{accepted:#?}");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_operator_moves_it_to_the_end() -> Test {
    let receiver = Receiver::start().await?;
    receiver.answer(|_| 503);
    let (suite, inventory) = posting_to(&receiver.url).await?;
    create_products(&inventory, 0..3).await?;
    suite.becomes("select count(*) from inventory.outbox_published", 3).await?;
    let skip = json!({"reason": "the receiver has read them elsewhere"});
    inventory.client.post("/api/admin/webhook/skip", &json!({"reason": ""})).await?.expect(422)?;
    inventory.client.post("/api/admin/webhook/skip", &skip).await?.expect(200)?;
    delivers_all(&inventory.client).await?;
    receiver.answer(|_| 204);
    create_products(&inventory, 3..4).await?;
    eventually(async || receiver.accepted().is_ok_and(|all| all.iter().any(|one| one.aggregate() == "P-3"))).await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn without_a_webhook_there_are_no_routes() -> Test {
    let (_suite, inventory) = TestSuite::alone(INVENTORY).await?;
    ensure!(inventory.client.get("/api/admin/webhook").await?.status == 404);
    Ok(())
}
