//! Arbitrary messages in the streams: each is dead-lettered unchanged, none stops its consumer, and orders are still confirmed.

use std::{collections::BTreeMap, fs};

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use contracts::{PARTICIPANTS, Participant};
use proptest::{
    prelude::{Strategy, any, prop_oneof},
    strategy::BoxedStrategy,
};
use sqlx::AssertSqlSafe;

use super::dice::{self, Dice};
use crate::prelude::*;

/// The messages that the readers of one subject find in the stream.
struct Target {
    subject: String,
    readers: u64,
    golden: Value,
    event_type: String,
}

#[suite_tests::test(unaudited = "hundreds of dead letters of forged events are left")]
async fn garbage_for_every_consumer_is_kept_and_blocks_nothing() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let mut dice = Dice::new();
    let jetstream = suite.jetstream().await?;
    let (mut deliveries, mut sent) = (0, Vec::new());
    for target in targets()? {
        let garbage = garbage(&target);
        for _ in 0..dice::cases(12) {
            let (headers, body) = dice.throw(&garbage);
            sent.extend(std::iter::repeat_n(body.clone(), usize::try_from(target.readers)?));
            deliveries += i64::try_from(target.readers)?;
            suite.publish_to(&jetstream, &Forged::bytes(&target.subject, headers, body)).await?;
        }
    }
    testkit::eventually(Duration::from_secs(60), async || {
        suite.end_the_wait_for_newer_replicas().await?;
        let parked = suite.number("select count(*) from audit.dead_letter").await?;
        let applied = suite.number("select count(*) from audit.inbox").await?;
        ensure!(parked == deliveries, "of {deliveries} {parked} are parked and {applied} applied");
        anyhow::Ok(())
    })
    .await?;
    let of = |participant: &Participant| format!("select payload from {}.dead_letter", participant.schema);
    let payloads = PARTICIPANTS.iter().map(of).collect::<Vec<_>>().join(" union all ");
    let mut kept: Vec<Vec<u8>> = sqlx::query_scalar(AssertSqlSafe(payloads)).fetch_all(&suite.pool).await?;
    kept.sort_unstable();
    sent.sort_unstable();
    ensure!(kept == sent, "a payload was not kept unchanged");
    for replica in participants.all() {
        let listed = replica.client.items("/api/admin/dlq?limit=200").await?;
        ensure!(!listed.is_empty(), "{} lists no dead letter", replica.service);
    }
    participants.confirmed(&[("A", 1)]).await.map(drop)
}

/// Every subject that a step consumes, with one valid event.
fn targets() -> anyhow::Result<Vec<Target>> {
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    for consumer in contracts::consumers() {
        let event = consumer.step.consumes().context("a consumer without an event")?;
        let event_type = event.wire_name();
        let golden = fs::read(format!("{}/golden/{event_type}.json", env!("CARGO_MANIFEST_DIR")))?;
        let subject = event.subject(consumer.publisher);
        let fresh =
            Target { subject: subject.clone(), readers: 0, golden: serde_json::from_slice(&golden)?, event_type };
        targets.entry(subject).or_insert(fresh).readers += 1;
    }
    Ok(targets.into_values().collect())
}

/// Messages that no version of the reader can process: with a wrong body, a wrong envelope, or both.
fn garbage(target: &Target) -> BoxedStrategy<(HeaderMap, Vec<u8>)> {
    let good = || (serde_json::to_vec(&target.golden).unwrap_or_default(), target.event_type.clone());
    let (body, event_type) = good();
    let no_envelope =
        (arbitrary_headers(), dice::bytes(400)).prop_map(|(headers, body)| (headers, unlike_others(body)));
    let (damaged, of_type) = (bad_body(&target.golden), event_type.clone());
    let bad_body = (damaged, dice::text()).prop_map(move |(body, odd)| (envelope(&of_type, &odd), body));
    let bad_type = dice::text().prop_map({
        let (body, event_type) = (body.clone(), event_type.clone());
        move |odd| (envelope(&format!("{event_type}{odd}9"), &odd), body.clone())
    });
    let names = ["ce-id", "ce-sagaid", "ce-causationid", "ce-sequence"];
    let bad_header = (proptest::sample::select(names.to_vec()), dice::text()).prop_map(move |(name, odd)| {
        let mut headers = envelope(&event_type, "");
        put(&mut headers, name, &format!("{odd}?"));
        (headers, unlike_others(body.clone()))
    });
    prop_oneof![no_envelope, bad_body, bad_type, bad_header].boxed()
}

/// Messages without a readable id are identified by their bodies: of two equal ones only one is kept.
fn unlike_others(mut body: Vec<u8>) -> Vec<u8> {
    body.extend(Uuid::now_v7().as_bytes());
    body
}

/// A body that is no event: truncated, no JSON, or with one member of another type.
fn bad_body(golden: &Value) -> BoxedStrategy<Vec<u8>> {
    let members: Vec<String> = golden.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let (golden, text) = (golden.clone(), golden.to_string().into_bytes());
    let cut = any::<proptest::sample::Index>().prop_map({
        let text = text.clone();
        move |at| text[..at.index(text.len())].to_vec()
    });
    let swapped = (proptest::sample::select(members), dice::text()).prop_map(move |(member, odd)| {
        let mut event = golden.clone();
        // No member of any event is a list of lists. The reader's error may quote its contents.
        event[member] = json!([[odd]]);
        event.to_string().into_bytes()
    });
    let bytes = dice::bytes(2_000).prop_map(|mut bytes| {
        bytes.insert(0, b'?');
        bytes
    });
    let large = (100_000_usize..900_000).prop_map(|length| vec![b'['; length]);
    prop_oneof![3 => cut, 3 => swapped, 2 => bytes, 1 => large].boxed()
}

fn arbitrary_headers() -> BoxedStrategy<HeaderMap> {
    let known = ["ce-id", "ce-source", "ce-time", "traceparent", "baggage", "ce-correlationid", "x"];
    let header = (proptest::sample::select(known.to_vec()), dice::text());
    let headers = proptest::collection::vec(header, 0..6).prop_map(|pairs| {
        let mut headers = HeaderMap::new();
        pairs.iter().for_each(|(name, value)| put(&mut headers, name, value));
        headers
    });
    headers.boxed()
}

/// A correct envelope, with odd texts where any text is allowed.
fn envelope(event_type: &str, odd: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    put(&mut headers, "ce-id", &Uuid::now_v7().to_string());
    put(&mut headers, "ce-type", event_type);
    put(&mut headers, "ce-sagaid", &Uuid::now_v7().to_string());
    for name in ["ce-sagatype", "ce-correlationid", "ce-subject", "traceparent", "baggage", "ce-time"] {
        put(&mut headers, name, odd);
    }
    headers
}

/// Sets the header; a line break, which NATS cannot carry, is left out. Every id is unique: two messages of one id are one
/// event.
fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    let is_id = name == "ce-id" && Uuid::parse_str(value).is_ok();
    let value = if is_id { Uuid::now_v7().to_string() } else { value.replace(['\r', '\n'], " ") };
    if let Ok(value) = value.parse::<HeaderValue>() {
        headers.insert(HeaderName::from_static(name), value);
    }
}

#[suite_tests::test(unaudited = "hundreds of dead letters of forged events are left")]
async fn texts_that_cannot_be_stored_are_still_dead_letters() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let golden = fs::read_to_string(format!("{}/golden/ProductCreated.v1.json", env!("CARGO_MANIFEST_DIR")))?;
    let subject = "events.inventory.ProductCreated";
    let mut typed = envelope("ProductCreated.v1", "a\0b");
    put(&mut typed, "ce-type", "ProductCreated.v1\0");
    let status = golden.replace("\"ACTIVE\"", "\"ACTIVE\\u0000\"");
    ensure!(status != golden, "the golden event has no status");
    // The first NUL comes back in the service's error, the second in the decoder's.
    for (headers, body) in [(typed, golden), (envelope("ProductCreated.v1", "a\0b"), status)] {
        suite.publish(&Forged::bytes(subject, headers, body.into_bytes())).await?;
    }
    order.client.until_items("/api/admin/dlq", 2).await.map(drop)
}
