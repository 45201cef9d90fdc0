//! The responses to invalid input.
#![allow(clippy::unwrap_used)]

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::DefaultBodyLimit,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Order {
    customer_id: String,
    #[serde(deserialize_with = "objects")]
    lines: Vec<Line>,
    #[serde(default, deserialize_with = "object")]
    gift: Line,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    quantity: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    age: Option<u32>,
}

fn app() -> Router {
    Router::new()
        .route("/orders", post(|Json(order): Json<Order>| async move { Json(order) }))
        .route("/orders/{id}", get(|Path(id): Path<uuid::Uuid>| async move { id.to_string() }))
        .route("/ages", get(|Query(filter): Query<Filter>| async move { format!("{:?}", filter.age) }))
        .route("/aged", get(|Filtered(own, page): Filtered<Filter>| async move { Json((own.age, page.rows())) }))
        .route("/cancel", post(|line: Option<Json<Line>>| async move { line.is_some().to_string() }))
        .layer(DefaultBodyLimit::max(1024))
}

async fn send(request: Request) -> (u16, Value) {
    let response = app().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

async fn post_order(body: impl Into<String>) -> (u16, Value) {
    let request = Request::post("/orders").header("content-type", "application/json");
    send(request.body(Body::from(body.into())).unwrap()).await
}

async fn get_uri(uri: &str) -> (u16, Value) {
    send(Request::get(uri).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_matching_body_is_accepted() {
    let (status, body) = post_order(r#"{"customer_id":"alice","lines":[{"quantity":1}]}"#).await;
    assert_eq!((status, &body["lines"][0]["quantity"]), (200, &Value::from(1)));
}

#[tokio::test]
async fn malformed_json_is_400() {
    for body in [
        "",
        "{",
        "{\"customer_id\":\"a\u{0}\"}",
        "nonsense",
        "{} {}",
        r#"{"customer_id":5,"#,
        r#"{"customer_id":"alice","lines":[]} {}"#,
    ] {
        let (status, problem) = post_order(body).await;
        assert_eq!(status, 400, "{body}: {problem}");
    }
}

#[tokio::test]
async fn a_wrong_type_is_422_with_a_pointer_to_the_value() {
    let (status, problem) = post_order(r#"{"customer_id":"alice","lines":[{"quantity":-1}]}"#).await;
    assert_eq!(status, 422);
    assert_eq!(problem["errors"][0]["pointer"], "/lines/0/quantity");
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("expected u32") && !detail.contains("column"), "{detail}");
}

#[tokio::test]
async fn a_list_is_not_accepted_as_an_object() {
    for (body, pointer) in [
        (r#"["alice",[{"quantity":1}]]"#, ""),
        (r#"{"customer_id":"alice","lines":[[1]]}"#, "/lines/0"),
        (r#"{"customer_id":"alice","lines":[],"gift":[1]}"#, "/gift"),
    ] {
        let (status, problem) = post_order(body).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from(pointer)), "{body}");
    }
}

#[tokio::test]
async fn a_missing_and_an_unknown_field_are_422_and_named() {
    let (status, problem) = post_order(r#"{"customer_id":"alice"}"#).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from("/lines")));
    let (status, problem) = post_order(r#"{"customer_id":"alice","lines":[{"quantity":1,"price":2}]}"#).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from("/lines/0/price")));
}

#[tokio::test]
async fn a_nul_character_is_422_and_an_escaped_backslash_is_not_one() {
    let (status, problem) = post_order(r#"{"customer_id":"a\u0000b","lines":[]}"#).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from("/customer_id")));
    let (status, _) = post_order(r#"{"customer_id":"a\\u0000b","lines":[]}"#).await;
    assert_eq!(status, 200);
    assert_eq!(get_uri("/ages?age=%00").await.0, 422);
    assert_eq!(get_uri("/orders/%00").await.0, 422);
}

#[tokio::test]
async fn another_media_type_is_415_and_a_huge_body_413() {
    let request = Request::post("/orders").header("content-type", "text/plain");
    assert_eq!(send(request.body(Body::from("{}")).unwrap()).await.0, 415);
    let request = Request::post("/orders").body(Body::from("{}")).unwrap();
    assert_eq!(send(request).await.0, 415);
    assert_eq!(post_order(" ".repeat(2000)).await.0, 413);
}

#[tokio::test]
async fn an_encoded_body_is_415_and_says_so() {
    let encoded = |path: &str, coding: &str| {
        let request = Request::post(path).header("content-type", "application/json");
        request.header("content-encoding", coding).body(Body::from(r#"{"customer_id":"alice","lines":[]}"#)).unwrap()
    };
    for coding in ["gzip", "br", "deflate, gzip", "identity, gzip"] {
        let (status, problem) = send(encoded("/orders", coding)).await;
        assert_eq!(status, 415, "{coding}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("Content-Encoding"), "{problem}");
    }
    assert_eq!(send(encoded("/cancel", "gzip")).await.0, 415);
    assert_eq!(send(encoded("/orders", "Identity")).await.0, 200);
}

#[tokio::test]
async fn an_optional_body_may_be_empty_but_not_wrong() {
    let empty = Request::post("/cancel").body(Body::empty()).unwrap();
    assert_eq!(send(empty).await, (200, Value::Bool(false)));
    let null = Request::post("/cancel").header("content-type", "application/json");
    assert_eq!(send(null.body(Body::from("null")).unwrap()).await, (200, Value::Bool(false)));
    let wrong = Request::post("/cancel").header("content-type", "application/json");
    assert_eq!(send(wrong.body(Body::from("{}")).unwrap()).await.0, 422);
}

#[tokio::test]
async fn an_invalid_parameter_is_422_and_named() {
    let (status, problem) = get_uri("/orders/not-a-uuid").await;
    assert_eq!(status, 422, "{problem}");
    let (status, problem) = get_uri("/ages?age=old").await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from("/age")), "{problem}");
    let (status, problem) = get_uri("/ages?aeg=3").await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from("/aeg")), "{problem}");
}

#[tokio::test]
async fn a_filter_and_page_parameters_combine() {
    assert_eq!(get_uri("/aged?limit=7&age=3&cursor=61").await, (200, serde_json::json!([3, 8])));
    assert_eq!(get_uri("/aged").await, (200, serde_json::json!([null, 21])));
    for (wrong, pointer) in [("age=old&limit=7", "/age"), ("limit=0", "/limit"), ("aeg=3", "/aeg"), ("limit", "/limit")]
    {
        let (status, problem) = get_uri(&format!("/aged?{wrong}")).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &Value::from(pointer)), "{problem}");
    }
}
