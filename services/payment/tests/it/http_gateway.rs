//! The interpretation of an HTTP server's answers, and of missing ones.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri},
    response::IntoResponse,
};
use clap::Parser;
use contracts::{Currency, Money, OrderId, PaymentId};
use faults::Faults;
use messaging::Context;
use participant::Calls;
use payment::{
    Config,
    domain::{Answer, Ask, DeclineCode, Reference},
    gateway::{GatewayError, HttpGateway, Intent, PaymentGateway},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Checks that each request is well-formed, and gives always the same answer.
async fn gateway(status: u16, body: Value) -> HttpGateway {
    gateway_that_voids(status, body.clone(), status, body).await
}

/// The same, with another answer to voids.
async fn gateway_that_voids(status: u16, body: Value, void_status: u16, void_body: Value) -> HttpGateway {
    let answer = move |uri: Uri, headers: HeaderMap, sent: String| async move {
        let (mut status, mut body) = (status, body);
        assert!(headers.contains_key("traceparent"));
        match uri.path() {
            "/v1/charges" => {
                let sent: Value = serde_json::from_str(&sent).unwrap();
                assert_eq!(
                    (&sent["amount"], &sent["currency"], &sent["token"]),
                    (&json!(1999), &json!("USD"), &json!("tok_visa"))
                );
                assert!(headers.contains_key("idempotency-key"));
            }
            "/v1/voids" => {
                assert!(headers.contains_key("idempotency-key"));
                (status, body) = (void_status, void_body);
            }
            path => assert_eq!(path, "/v1/charges/ch_1/refund"),
        }
        (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
    };
    at(serve(Router::new().fallback(answer)).await)
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn at(address: SocketAddr) -> HttpGateway {
    let url = format!("http://{address}/");
    let arguments = ["payment", "--database-url", "postgres://", "--gateway-url", &url, "--gateway-timeout", "300ms"];
    let calls = |client, declines| Calls::new(client, Faults::none(), declines);
    HttpGateway::new(&Config::parse_from(arguments).gateway, calls).unwrap()
}

async fn asked(gateway: &HttpGateway, ask: Ask) -> Result<Answer, GatewayError> {
    let order_id = OrderId::new();
    let intent = Intent {
        payment_id: PaymentId::of(order_id),
        order_id,
        amount: Money::new(1_999, Currency::USD),
        method: "tok_visa".to_owned(),
    };
    gateway.ask(&ask, &intent, &Context::background("test")).await
}

fn charge(refunded: bool) -> Value {
    json!({"charge_id": "ch_1", "status": "captured", "amount": 1999, "currency": "USD", "refunded": refunded})
}

fn void_that_refunds() -> Value {
    json!({"outcome": "refunded", "charge_id": "ch_1", "amount": 1999, "currency": "USD"})
}

fn ch_1() -> Reference {
    Reference("ch_1".to_owned())
}

#[tokio::test]
async fn a_definite_answer_is_an_answer() {
    let declined = json!({"status": "declined", "decline_code": "expired_card"});
    for (ask, status, body, expected) in [
        (Ask::Charge, 201, charge(false), Answer::Captured(ch_1())),
        // The charge was repeated, and may have been refunded since.
        (Ask::Charge, 200, charge(false), Answer::Captured(ch_1())),
        (Ask::Charge, 200, charge(true), Answer::Refunded(ch_1())),
        (Ask::Charge, 402, declined, Answer::Declined(DeclineCode("expired_card".to_owned()))),
        (Ask::Refund(ch_1()), 200, charge(true), Answer::Refunded(ch_1())),
        (Ask::Void, 200, void_that_refunds(), Answer::Refunded(ch_1())),
        (Ask::Void, 200, json!({"outcome": "voided"}), Answer::Fenced),
    ] {
        let answer = asked(&gateway(status, body).await, ask.clone()).await.unwrap();
        assert_eq!(answer, expected, "{ask:?}, {status}");
    }
}

#[tokio::test]
async fn an_indefinite_answer_is_unknown() {
    for status in [408, 425, 429, 500, 502, 503, 504, 302] {
        let error = asked(&gateway(status, json!({})).await, Ask::Charge).await.unwrap_err();
        assert!(error.is_unknown(), "{status}: {error:?}");
    }
    for nonsense in
        [json!({}), json!("captured"), json!({"charge_id": "ch_1", "amount": 1, "currency": "USD", "refunded": false})]
    {
        let error = asked(&gateway(201, nonsense).await, Ask::Charge).await.unwrap_err();
        assert!(error.is_unknown(), "{error:?}");
    }
    let not_refunded = asked(&gateway(200, charge(false)).await, Ask::Refund(ch_1())).await.unwrap_err();
    assert!(not_refunded.is_unknown());
}

#[tokio::test]
async fn a_permanently_rejected_charge_is_voided_and_declined() {
    let voided = json!({"outcome": "voided"});
    for status in [400, 402, 404, 405, 409, 410, 413, 418, 422, 451, 499] {
        let gateway = gateway_that_voids(status, json!({}), 200, voided.clone()).await;
        let answer = asked(&gateway, Ask::Charge).await.unwrap();
        assert_eq!(answer, Answer::Declined(DeclineCode("charge_not_accepted".to_owned())), "{status}");
    }
}

#[tokio::test]
async fn the_charge_of_an_earlier_attempt_is_refunded() {
    let gateway = gateway_that_voids(409, json!({}), 200, void_that_refunds()).await;
    let answer = asked(&gateway, Ask::Charge).await.unwrap();
    assert_eq!(answer, Answer::Refunded(ch_1()));
}

#[tokio::test]
async fn a_rejected_charge_that_cannot_be_voided_is_unknown() {
    for void_status in [404, 429, 503] {
        let gateway = gateway_that_voids(422, json!({}), void_status, json!({})).await;
        let error = asked(&gateway, Ask::Charge).await.unwrap_err();
        assert!(error.is_unknown(), "{void_status}: {error:?}");
    }
}

#[tokio::test]
async fn refunds_and_voids_can_be_rejected_permanently() {
    for ask in [Ask::Refund(ch_1()), Ask::Void] {
        for status in [400, 404, 409, 422] {
            let error = asked(&gateway(status, json!({})).await, ask.clone()).await.unwrap_err();
            assert!(matches!(error, GatewayError::Rejected { status: actual } if actual == status), "{error:?}");
        }
    }
}

#[tokio::test]
async fn rejected_credentials_mean_unavailable() {
    for ask in [Ask::Charge, Ask::Refund(ch_1()), Ask::Void] {
        for status in [401, 403, 407] {
            let error = asked(&gateway(status, json!({})).await, ask.clone()).await.unwrap_err();
            assert!(matches!(error, GatewayError::Unavailable(_)), "{status}: {error:?}");
        }
    }
}

#[tokio::test]
async fn no_answer_in_time_is_unknown() {
    let silent = Router::new().fallback(async || tokio::time::sleep(Duration::from_secs(60)).await);
    let error = asked(&at(serve(silent).await), Ask::Charge).await.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
}

#[tokio::test]
async fn a_broken_connection_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = at(listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            connection.readable().await.unwrap();
        }
    });
    let error = asked(&gateway, Ask::Charge).await.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_gateway_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = at(listener.local_addr().unwrap());
    drop(listener);
    let error = asked(&gateway, Ask::Charge).await.unwrap_err();
    assert!(matches!(error, GatewayError::Unavailable(_)), "{error:?}");
}
