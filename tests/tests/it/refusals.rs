//! What the card processor refuses for good: a charge is refused to its customer, a refund is kept for an operator, and
//! neither says anything about the processor. That it does not know us is an outage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use contracts::{INVENTORY, ORDER, PAYMENT};
use faults::Faults;
use serde_json::{Value, json};
use suite_tests::{Dancers, Stage, Tuning};
use testkit::eventually;
use tokio::net::TcpListener;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);

/// Between payment and the card processor: while it is strict it gives the answers that `refuses` names (for a path and a
/// card), and passes on everything else.
#[derive(Clone)]
struct Gatekeeper {
    processor: String,
    http: reqwest::Client,
    refuses: fn(&str, &str) -> Option<u16>,
    strict: Arc<AtomicBool>,
}

impl Gatekeeper {
    async fn answer(self, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> anyhow::Result<Response> {
        let charge: Value = serde_json::from_slice(&body).unwrap_or_default();
        let card = charge["token"].as_str().unwrap_or_default();
        if self.strict.load(Ordering::SeqCst)
            && let Some(status) = (self.refuses)(uri.path(), card)
        {
            return Ok(StatusCode::from_u16(status)?.into_response());
        }
        let mut request = self.http.request(method, format!("{}{uri}", self.processor)).body(body);
        for name in ["content-type", "idempotency-key"] {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await?;
        let kind = answer.headers().get(CONTENT_TYPE).cloned().context("no content type")?;
        Ok((answer.status(), [(CONTENT_TYPE, kind)], answer.bytes().await?).into_response())
    }
}

/// The suite with such a gatekeeper, strict from the beginning.
async fn suite_behind(
    stage: &mut Stage,
    refuses: fn(&str, &str) -> Option<u16>,
) -> anyhow::Result<(Dancers, Arc<AtomicBool>)> {
    let strict = Arc::new(AtomicBool::new(true));
    let processor = stage.gateway.base_url.clone();
    let gatekeeper =
        Gatekeeper { processor: processor.clone(), http: reqwest::Client::new(), refuses, strict: strict.clone() };
    let answer = move |method, uri, headers, body| async move {
        gatekeeper.answer(method, uri, headers, body).await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    stage.gateway.base_url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let inventory = stage.start(INVENTORY).await?;
    let order = stage.start_with(ORDER, Faults::none(), &inventory.url).await?;
    let payment = stage.start(PAYMENT).await?;
    stage.gateway.base_url = processor;
    let suite = Dancers::of(order, inventory, payment).with_others(stage).await?;
    suite.sell("A", 100, 1000).await?;
    Ok((suite, strict))
}

/// The step's breaker has heard of no failure.
async fn unmoved(suite: &Dancers, step: &str) -> Test {
    let breaker = suite.payment.breaker(step).await?;
    ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
    Ok(())
}

#[suite_tests::test]
async fn eight_odd_cards_stop_no_other_order() -> Test {
    let (stage, suite) = Stage::selling(100, 1000).await?;
    let odd = suite.place_many(8, &"é".repeat(128)).await?;
    suite.sagas_become(&odd, "COMPENSATED").await?;
    suite.confirmed(&[("A", 1)]).await?;
    unmoved(&suite, "process_payment").await?;
    stage.nothing_was_counted().await?;
    stage.audit().await
}

#[suite_tests::test]
async fn a_charge_that_is_refused_for_good_is_told_its_customer() -> Test {
    let mut stage = Stage::new().await?;
    let refuses =
        |path: &str, card: &str| (path == "/v1/charges").then(|| card.strip_prefix("status_")?.parse().ok())?;
    let (suite, _) = suite_behind(&mut stage, refuses).await?;
    let mut refused = Vec::new();
    for status in [400, 402, 404, 405, 406, 409, 410, 413, 414, 415, 422, 431, 451] {
        refused.push(suite.place(&[("A", 1)], &format!("status_{status}")).await?);
    }
    for order in &refused {
        suite.saga_becomes(order, "COMPENSATED").await?;
        let told = suite.order(order).await?["cancel_reason"].clone();
        ensure!(told == "the payment was refused: charge_not_accepted", "{told}");
        let payment = suite.payment_of(order).await?.context("no payment")?;
        ensure!(payment["status"] == "DECLINED" && payment["decline_code"] == "charge_not_accepted", "{payment}");
    }
    suite.confirmed(&[("A", 1)]).await?;
    unmoved(&suite, "process_payment").await?;
    stage.nothing_was_counted().await?;
    stage.audit().await
}

#[suite_tests::test]
async fn a_refund_that_is_refused_for_good_waits_for_an_operator() -> Test {
    let mut stage = Stage::new().await?;
    let (suite, strict) = suite_behind(&mut stage, |path, _| path.ends_with("/refund").then_some(409)).await?;
    let cancelled = suite.place_many(8, "tok_visa").await?;
    for order in &cancelled {
        suite.saga_becomes(order, "COMPLETED").await?;
        ensure!(suite.cancel(order).await? == 202);
    }
    let letters = eventually(LIMIT, async || {
        let letters = suite.payment.client.get("/api/admin/dlq?step=refund_payment").await?.expect(200)?;
        let letters = letters["items"].as_array().cloned().unwrap_or_default();
        ensure!(letters.len() == 8, "{} dead letters: {letters:#?}", letters.len());
        anyhow::Ok(Some(letters))
    })
    .await?;
    for letter in &letters {
        ensure!(letter["reason"] == "poison" && letter["attempts"] == 1, "{letter:#}");
        ensure!(letter["error_chain"].as_str().is_some_and(|chain| chain.contains("409")), "{letter:#}");
    }
    unmoved(&suite, "refund_payment").await?;
    let mut owed = 0;
    for order in &cancelled {
        let saga = suite.order.client.get(&format!("/api/sagas/{}", order["saga_id"].as_str().unwrap())).await?;
        owed += usize::from(saga.body["receipts_due"].as_array().is_some_and(|due| due.contains(&json!("payment"))));
    }
    ensure!(owed == 8, "of 8 refunds {owed} are known to be owed");

    strict.store(false, Ordering::SeqCst);
    for letter in &letters {
        let replay = format!("/api/admin/dlq/{}/replay", letter["id"].as_str().unwrap());
        let replayed = suite.payment.client.post(&replay, &json!({"reason": "refundable again"})).await?.expect(200)?;
        ensure!(replayed["status"] == "RESOLVED", "{replayed:#}");
    }
    suite.sagas_become(&cancelled, "COMPENSATED").await?;
    stage.audit().await
}

#[suite_tests::test]
async fn a_processor_that_does_not_know_us_is_an_outage() -> Test {
    let resilience = "process_payment.open_for=300ms,refund_payment.open_for=300ms";
    for status in [401, 403, 407] {
        let mut stage = Stage::with(Tuning { resilience, ..Tuning::default() }).await?;
        let refuses: fn(&str, &str) -> Option<u16> = match status {
            401 => |_, _| Some(401),
            403 => |_, _| Some(403),
            _ => |_, _| Some(407),
        };
        let (suite, strict) = suite_behind(&mut stage, refuses).await?;
        let placed = suite.place_many(8, "tok_visa").await?;
        eventually(LIMIT, async || {
            let breaker = suite.payment.breaker("process_payment").await?;
            ensure!(breaker["totals"]["opened"].as_u64() >= Some(1), "{breaker:#}");
            anyhow::Ok(())
        })
        .await?;
        stage.nothing_was_counted().await?;
        strict.store(false, Ordering::SeqCst);
        suite.sagas_become(&placed, "COMPLETED").await?;
        stage.nothing_was_counted().await?;
        stage.audit().await?;
    }
    Ok(())
}
