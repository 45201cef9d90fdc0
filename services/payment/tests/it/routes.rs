//! The REST API of payments.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use serde_json::{Value, json};
use tower::ServiceExt;

use contracts::PaymentId;

use crate::lab::{Lab, PRICE};

async fn get(router: &Router, path: &str) -> (u16, Value) {
    let response = router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

pub(crate) async fn post(router: &Router, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::post(path).header("content-type", "application/json").body(Body::from(body.to_string()));
    let response = router.clone().oneshot(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn a_payment_is_found_by_its_id_and_by_its_order() {
    let lab = Lab::start().await;
    let (router, _) = payment::router(&lab.app).split_for_parts();
    let (paid, declined) = (lab.order("tok_visa").await, lab.order("tok_declined").await);
    lab.charge(&[&paid.reserved()]).await.unwrap();
    lab.charge(&[&declined.reserved()]).await.unwrap();

    let (status, page) = get(&router, &format!("/api/payments?order_id={}", paid.order_id)).await;
    assert_eq!((status, page["items"].as_array().unwrap().len(), &page["next_cursor"]), (200, 1, &Value::Null));
    let body = &page["items"][0];
    assert_eq!(body["amount"], json!({"amount": PRICE, "currency": "USD"}));
    assert_eq!((&body["status"], &body["method"]), (&json!("CAPTURED"), &json!("tok_visa")));
    assert_eq!(body["saga_id"], json!(paid.saga_id));
    assert!(body["gateway_reference"].is_string() && body["captured_at"].is_string());
    assert!(body["decline_code"].is_null() && body["refunded_at"].is_null() && body["cancelled_at"].is_null());
    let (status, same) = get(&router, &format!("/api/payments/{}", body["payment_id"].as_str().unwrap())).await;
    assert_eq!((status, &same), (200, body));

    let (_, first) = get(&router, "/api/payments?limit=1").await;
    assert_eq!(first["items"][0]["decline_code"], json!("card_declined"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, second) = get(&router, &format!("/api/payments?limit=1&cursor={cursor}")).await;
    assert_eq!((&second["items"][0], &second["next_cursor"]), (body, &Value::Null));
}

#[tokio::test]
async fn unknown_payments_and_invalid_queries_are_problems() {
    let lab = Lab::start().await;
    let (router, _) = payment::router(&lab.app).split_for_parts();
    for (path, expected) in [
        ("/api/payments/0199a3c0-0000-7000-8000-000000000000", 404),
        ("/api/payments/1", 422),
        ("/api/payments?order_id=1", 422),
        ("/api/payments?limit=0", 422),
        ("/api/payments?status=CAPTURED", 422),
    ] {
        let (status, problem) = get(&router, path).await;
        assert_eq!((status, &problem["status"]), (expected, &json!(expected)), "{path}");
    }
}

/// Twice, because a client may have missed the answer.
#[tokio::test]
async fn a_charge_without_an_order_is_refunded() {
    let lab = Lab::start().await;
    let (router, _) = payment::router(&lab.app).split_for_parts();
    let order = lab.order("tok_visa").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    let body = json!({"order_id": order.order_id, "amount": {"amount": PRICE, "currency": "USD"}});
    let known = post(&router, "/api/admin/forgotten-charges", &body).await;
    assert_eq!((known.0, lab.gateway.charged_and_held()), (409, (PRICE, PRICE)), "{known:?}");

    lab.forget_payments().await;
    lab.forget_sagas().await;
    for _ in 0..2 {
        let (status, refunded) = post(&router, "/api/admin/forgotten-charges", &body).await;
        assert_eq!((status, &refunded["status"]), (200, &json!("REFUNDED")), "{refunded}");
        assert_eq!((refunded["amount"].clone(), lab.gateway.charged_and_held()), (body["amount"].clone(), (PRICE, 0)));
    }
    // It was refunded before the database was restored: the refund is recorded.
    lab.forget_payments().await;
    let (status, refunded) = post(&router, "/api/admin/forgotten-charges", &body).await;
    assert_eq!((status, &refunded["status"]), (200, &json!("REFUNDED")), "{refunded}");
    for (amount, currency) in [(0, "USD"), (PRICE, "AHT")] {
        let invalid = json!({"order_id": order.order_id, "amount": {"amount": amount, "currency": currency}});
        assert_eq!(post(&router, "/api/admin/forgotten-charges", &invalid).await.0, 422, "{invalid}");
    }
    let same_payment = json!({"order_id": PaymentId::of(order.order_id), "amount": body["amount"]});
    assert_eq!(post(&router, "/api/admin/forgotten-charges", &same_payment).await.0, 422, "{same_payment}");
}
