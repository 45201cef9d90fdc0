//! Arbitrary requests to every route that takes a body or a query: refused with a problem document, never with a server error.

use proptest::prelude::{Strategy, prop_oneof};
use reqwest::{RequestBuilder, StatusCode, header};
use suite_tests::Operation;

use super::dice::{self, Dice};
use crate::prelude::*;

#[suite_tests::test(unaudited = "whatever the requests happen to do, they do to made-up products")]
async fn no_request_causes_a_server_error() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let mut dice = Dice::new();
    for replica in participants.all() {
        let document = serde_json::to_value(&replica.openapi)?;
        let mut routes = replica.operations()?;
        routes.retain(|route| route.takes_body || !route.query.is_empty());
        ensure!(routes.iter().any(|route| route.takes_body) && routes.iter().any(|route| !route.query.is_empty()));
        let bodies = bodies(member_names(&document));
        for route in &routes {
            for _ in 0..dice::cases(25) {
                let request = drawn(replica, route, &bodies, &mut dice)?;
                check(replica, route, request).await?;
            }
        }
        ensure!(replica.client.get("/health/ready").await?.status == 200, "{} has suffered", replica.service);
    }
    suite.nothing_was_counted().await
}

fn drawn(
    replica: &Replica,
    route: &Operation,
    bodies: &impl Strategy<Value = Vec<u8>>,
    dice: &mut Dice,
) -> anyhow::Result<RequestBuilder> {
    let parameter = |dice: &mut Dice| match dice.throw(&(0..3)) {
        0 => Uuid::now_v7().to_string(),
        1 => "A".to_owned(),
        _ => dice.throw(&dice::text()),
    };
    let mut url = reqwest::Url::parse(&replica.url)?;
    {
        let mut segments = url.path_segments_mut().map_err(|()| anyhow::anyhow!("no path"))?;
        for segment in route.path.trim_start_matches('/').split('/') {
            let filled = if segment.starts_with('{') { parameter(dice) } else { segment.to_owned() };
            segments.push(&filled);
        }
    }
    for name in &route.query {
        if dice.throw(&proptest::bool::ANY) {
            url.query_pairs_mut().append_pair(name, &parameter(dice));
        }
    }
    let mut request = reqwest::Client::new().request(route.method.clone(), url).bearer_auth("dev-admin-token");
    if route.takes_body {
        let kinds = ["application/json", "application/json", "application/json; charset=utf-8", "text/plain", ""];
        let kind = dice.throw(&proptest::sample::select(kinds.to_vec()));
        request = request.header(header::CONTENT_TYPE, kind).body(dice.throw(bodies));
    }
    Ok(request)
}

async fn check(replica: &Replica, route: &Operation, request: RequestBuilder) -> Test {
    let request = request.build()?;
    let description = format!(
        "{} {} {:?}",
        request.method(),
        request.url(),
        request.body().and_then(|b| b.as_bytes()).map(String::from_utf8_lossy)
    );
    let answer = reqwest::Client::new().execute(request).await.with_context(|| description.clone())?;
    let (status, kind) = (answer.status(), answer.headers().get(header::CONTENT_TYPE).cloned());
    let body = answer.text().await?;
    let said = format!("{}: {status} {body}\nto {description}", replica.service);
    ensure!(!status.is_server_error(), "{said}");
    // A text in the path may have changed the route.
    let elsewhere =
        matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) && route.path.contains('{');
    ensure!(elsewhere || route.answers.contains(status.as_str()), "not documented: {said}");
    if status.is_client_error() {
        ensure!(kind.is_some_and(|kind| kind == "application/problem+json"), "{said}");
        let problem: Value = serde_json::from_str(&body).with_context(|| said.clone())?;
        ensure!(problem["status"] == status.as_u16() && problem["detail"].is_string(), "{said}");
    }
    Ok(())
}

/// The names of all members in the document's schemas.
fn member_names(document: &Value) -> Vec<String> {
    let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
    let members = schemas.flat_map(|(_, schema)| schema["properties"].as_object().into_iter().flatten());
    members.map(|(name, _)| name.clone()).collect()
}

/// Bytes, JSON, JSON with a few bytes changed, and JSON that is extreme in size or depth.
fn bodies(names: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    let monsters = [
        "[".repeat(20_000),
        "{\"a\":".repeat(10_000),
        format!("{{\"quantity\":{}}}", "9".repeat(10_000)),
        "{\"quantity\":1e400,\"price\":{\"amount\":-0.0}}".to_owned(),
        "{\"customer_id\":\"\\ud800\",\"sku\":\"\\u0000\"}".to_owned(),
        "{\"sku\":\"A\",\"sku\":\"B\"}".to_owned(),
        format!("\u{feff}{{}}{}", " ".repeat(60_000)),
        "\"".repeat(65_537),
    ];
    let json = dice::json(names).prop_map(|value| value.to_string().into_bytes());
    let damaged = (json.clone(), dice::bytes(4), proptest::arbitrary::any::<proptest::sample::Index>());
    let damaged = damaged.prop_map(|(mut text, splinter, at)| {
        let at = at.index(text.len().max(1)).min(text.len());
        text.splice(at..(at + splinter.len()).min(text.len()), splinter);
        text
    });
    prop_oneof![
        6 => json,
        2 => damaged,
        1 => dice::bytes(200),
        1 => proptest::sample::select(monsters.map(String::into_bytes).to_vec()),
    ]
}
