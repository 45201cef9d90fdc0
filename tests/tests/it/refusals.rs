//! Permanent refusals of the card processor: a refused charge cancels the order, a refused refund waits for an operator, and
//! neither counts against the processor. A processor that rejects our credentials is an outage.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use tokio::net::TcpListener;

use crate::prelude::*;

/// A proxy in front of the card processor: while it is strict it sends the answers that `refuses` names (for a path and a card),
/// and passes on everything else.
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

/// The participants behind such a proxy, strict from the beginning.
async fn participants_behind(
    suite: &mut TestSuite,
    refuses: fn(&str, &str) -> Option<u16>,
) -> anyhow::Result<(Participants, Arc<AtomicBool>)> {
    let strict = Arc::new(AtomicBool::new(true));
    let processor = suite.gateway.base_url.clone();
    let gatekeeper =
        Gatekeeper { processor: processor.clone(), http: reqwest::Client::new(), refuses, strict: strict.clone() };
    let answer = move |method, uri, headers, body| async move {
        gatekeeper.answer(method, uri, headers, body).await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    suite.gateway.base_url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let participants = suite.participants().await?;
    suite.gateway.base_url = processor;
    participants.sell("A", 100, 1000).await?;
    Ok((participants, strict))
}

/// The step's breaker has counted no failure.
async fn unmoved(participants: &Participants, step: &str) -> Test {
    let breaker = participants.payment.breaker(step).await?;
    ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
    Ok(())
}

#[suite_tests::test]
async fn eight_refused_cards_stop_no_other_order() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let odd = participants.place_many(8, &"é".repeat(128)).await?;
    participants.sagas_become(&odd, "COMPENSATED").await?;
    participants.confirmed(&[("A", 1)]).await?;
    unmoved(&participants, "process_payment").await?;
    suite.nothing_was_counted().await?;
    suite.audit().await
}

#[suite_tests::test]
async fn the_customer_learns_that_a_charge_was_refused() -> Test {
    let mut suite = TestSuite::new().await?;
    let refuses =
        |path: &str, card: &str| (path == "/v1/charges").then(|| card.strip_prefix("status_")?.parse().ok())?;
    let (participants, _) = participants_behind(&mut suite, refuses).await?;
    let mut refused = Vec::new();
    for status in [400, 402, 404, 405, 406, 409, 410, 413, 414, 415, 422, 431, 451] {
        refused.push(participants.place(&[("A", 1)], &format!("status_{status}")).await?);
    }
    for order in &refused {
        participants.saga_becomes(order, "COMPENSATED").await?;
        let reason = participants.order(order).await?["cancel_reason"].clone();
        ensure!(reason == "the payment was refused: charge_not_accepted", "{reason}");
        let payment = participants.payment_of(order).await?.context("no payment")?;
        ensure!(payment["status"] == "DECLINED" && payment["decline_code"] == "charge_not_accepted", "{payment}");
    }
    participants.confirmed(&[("A", 1)]).await?;
    unmoved(&participants, "process_payment").await?;
    suite.nothing_was_counted().await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_refused_refund_waits_for_an_operator() -> Test {
    let mut suite = TestSuite::new().await?;
    let (participants, strict) =
        participants_behind(&mut suite, |path, _| path.ends_with("/refund").then_some(409)).await?;
    let cancelled = participants.place_many(8, "tok_visa").await?;
    for order in &cancelled {
        participants.saga_becomes(order, "COMPLETED").await?;
        ensure!(participants.cancel(order).await? == 202);
    }
    let letters = participants.payment.client.until_items("/api/admin/dlq?step=refund_payment", 8).await?;
    for letter in &letters {
        ensure!(letter["reason"] == "poison" && letter["attempts"] == 1, "{letter:#}");
        ensure!(letter["error_chain"].as_str().is_some_and(|chain| chain.contains("409")), "{letter:#}");
    }
    unmoved(&participants, "refund_payment").await?;
    for order in &cancelled {
        let saga = participants.saga(order).await?;
        let owed = saga["receipts_due"].as_array().is_some_and(|due| due.contains(&json!("payment")));
        ensure!(owed, "its refund is not known to be owed: {saga:#}");
    }

    strict.store(false, Ordering::SeqCst);
    for letter in &letters {
        let replay = format!("/api/admin/dlq/{}/replay", letter["id"].as_str().unwrap());
        let replayed =
            participants.payment.client.post(&replay, &json!({"reason": "refundable again"})).await?.expect(200)?;
        ensure!(replayed["status"] == "RESOLVED", "{replayed:#}");
    }
    participants.sagas_become(&cancelled, "COMPENSATED").await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_processor_that_rejects_our_credentials_is_an_outage() -> Test {
    const REJECTED: [fn(&str, &str) -> Option<u16>; 3] = [|_, _| Some(401), |_, _| Some(403), |_, _| Some(407)];
    let resilience = "process_payment.open_for=300ms,refund_payment.open_for=300ms";
    for refuses in REJECTED {
        let mut suite = TestSuite::with(Tuning { resilience, ..Tuning::default() }).await?;
        let (participants, strict) = participants_behind(&mut suite, refuses).await?;
        let placed = participants.place_many(8, "tok_visa").await?;
        let has_opened = |breaker: &Value| breaker["totals"]["opened"].as_u64() >= Some(1);
        participants.payment.breaker_until("process_payment", has_opened).await?;
        suite.nothing_was_counted().await?;
        strict.store(false, Ordering::SeqCst);
        participants.sagas_become(&placed, "COMPLETED").await?;
        suite.nothing_was_counted().await?;
        suite.audit().await?;
    }
    Ok(())
}
