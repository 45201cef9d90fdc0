//! The common behaviour of every service's responses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::{collections::BTreeSet, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, Request},
};
use serde_json::Value;
use tower::ServiceExt as _;
use utoipa_axum::routes;

use super::*;
use crate::{
    config::parsed,
    http::{Filtered, Json, Page, PageQuery, Path, Query},
};

/// An order's number.
#[utoipa::path(get, path = "/api/orders/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = u32)))]
async fn get_order(Path(id): Path<u32>) -> Result<Json<u32>, Problem> {
    match id {
        500 => panic!("boom"),
        404 => Err(Problem::not_found("There is no such order.")),
        9 => std::future::pending().await,
        id => Ok(Json(id)),
    }
}

/// Parameters beside those of a page.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    status: Option<String>,
}

/// Orders.
#[utoipa::path(get, path = "/api/orders", params(ListQuery, PageQuery), responses((status = 200, body = Page<u32>)))]
async fn list_orders(Filtered(query, page): Filtered<ListQuery>) -> Json<Page<u32>> {
    Json(Page::from_rows((1..=9).collect(), &page, |id| format!("{id}{:?}", query.status)))
}

/// Products.
#[utoipa::path(get, path = "/api/products", params(PageQuery), responses((status = 200, body = Page<String>)))]
async fn list_products(Query(page): Query<PageQuery>) -> Json<Page<String>> {
    Json(Page::from_rows(Vec::new(), &page, String::clone))
}

/// Takes an order.
#[utoipa::path(post, path = "/api/orders", request_body = u32, responses((status = 201, body = u32)))]
async fn place_order(Json(id): Json<u32>) -> Json<u32> {
    Json(id)
}

/// Dead letters.
#[utoipa::path(get, path = "/api/admin/dlq", responses((status = 200, body = u32)))]
async fn list_dead_letters() -> Json<u32> {
    Json(0)
}

fn shell_with(flags: &[&str]) -> Shell {
    let service = ServiceInfo { name: "order", title: "Order", description: "Takes orders.", version: "1.2.3" };
    Shell::new(service, &parsed(flags), Readiness::default(), Metrics::default())
}

fn api() -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(get_order))
        .routes(routes!(list_products))
        .routes(routes!(list_orders, place_order))
        .routes(routes!(list_dead_letters))
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("a JSON body")
    }
}

async fn ask(app: &Router, method: &str, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("host", "a");
    send(app, request.header("content-type", "application/json").body(Body::from(body.to_owned())).unwrap()).await
}

async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Answer { status: parts.status.as_u16(), headers: parts.headers, text }
}

#[tokio::test]
async fn every_error_is_a_problem_with_path_correlation_id_and_trace() {
    let (app, _) = assemble(&shell_with(&[]), api());
    let huge = " ".repeat(70_000);
    for (method, path, body, status) in [
        ("GET", "/nowhere", "", 404),
        ("GET", "/api/orders/404", "", 404),
        ("DELETE", "/api/orders/1", "", 405),
        ("POST", "/api/orders", "{", 400),
        ("POST", "/api/orders", huge.as_str(), 413),
        ("GET", "/api/orders/x", "", 422),
        ("GET", "/api/orders/500", "", 500),
        ("GET", "/api/admin/dlq", "", 401),
        ("GET", "/docs/nothing", "", 404),
        ("POST", "/metrics", "", 405),
    ] {
        let answer = ask(&app, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path}");
        let problem = answer.json();
        assert_eq!(problem["instance"], path);
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().len() > 10);
        assert!(answer.headers.contains_key("x-correlation-id"));
        assert_eq!(answer.headers["traceparent"].len(), 55);
    }
}

#[tokio::test]
async fn an_http_1_1_request_needs_one_host() {
    let (app, _) = assemble(&shell_with(&[]), api());
    let request = || Request::get("/api/orders/1");
    for wrong in [request(), request().header("host", "a").header("host", "b"), Request::get("/health/live")] {
        let answer = send(&app, wrong.body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status, answer.json()["status"].as_u64()), (400, Some(400)));
    }
    let old = request().version(axum::http::Version::HTTP_10);
    for right in [request().header("host", "a"), old] {
        assert_eq!(send(&app, right.body(Body::empty()).unwrap()).await.status, 200);
    }
}

#[tokio::test]
async fn headers_are_64_kib_at_most() {
    let (app, _) = assemble(&shell_with(&[]), api());
    for (length, status) in [(65_000, 200), (65_536, 431), (100_000, 431)] {
        let request = Request::get("/api/orders/1").header("host", "a").header("x-large", "x".repeat(length));
        let answer = send(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{length}");
        assert!(status == 200 || answer.headers["content-type"] == "application/problem+json");
    }
}

#[tokio::test]
async fn a_wrong_method_gets_the_allowed_ones() {
    let (app, _) = assemble(&shell_with(&[]), api());
    let answer = ask(&app, "DELETE", "/api/orders/1", "").await;
    assert_eq!(answer.headers["allow"], "GET,HEAD");
}

#[tokio::test]
async fn readiness_names_each_dependency() {
    let shell = shell_with(&[]);
    let (app, _) = assemble(&shell, api());
    let postgres = shell.readiness.register("postgres");
    let answer = ask(&app, "GET", "/health/ready", "").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!(answer.json()["checks"]["postgres"]["ok"], false);
    assert_eq!(answer.json()["status"], 503);
    postgres.ok();
    let answer = ask(&app, "GET", "/health/ready", "").await;
    assert_eq!((answer.status, &answer.json()["checks"]["postgres"]["ok"]), (200, &Value::Bool(true)));
    let relay = shell.readiness.register("relay");
    assert_eq!(ask(&app, "GET", "/health/ready", "").await.status, 503);
    assert_eq!(ask(&app, "GET", "/health/serving", "").await.status, 200);
    relay.ok();
    postgres.failing("it does not answer");
    assert_eq!(ask(&app, "GET", "/health/serving", "").await.status, 503);
    assert_eq!(ask(&app, "GET", "/health/live", "").await.status, 200);
}

#[tokio::test]
async fn while_starting_only_health_and_metrics_are_served() {
    let app = starting(&shell_with(&[]));
    assert_eq!(ask(&app, "GET", "/health/live", "").await.status, 200);
    assert_eq!(ask(&app, "GET", "/metrics", "").await.status, 200);
    let answer = ask(&app, "GET", "/api/orders/1", "").await;
    assert_eq!((answer.status, &answer.headers["retry-after"]), (503, &"1".parse().unwrap()));
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let shell = shell_with(&[]);
    let (app, _) = assemble(&shell, api());
    for path in ["/api/orders/1", "/api/orders/2", "/nowhere"] {
        ask(&app, "GET", path, "").await;
    }
    let metrics = ask(&app, "GET", "/metrics", "").await.text;
    let counter = r#"http_server_requests_total{method="GET",route="/api/orders/{id}",status="200"} 2"#;
    assert!(metrics.contains(counter), "{metrics}");
    assert!(metrics.contains(r#"route="unmatched",status="404"} 1"#));
    assert!(metrics.contains("http_server_request_duration_seconds_bucket"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_503() {
    let (app, _) = assemble(&shell_with(&["--request-timeout", "35s"]), api());
    let answer = ask(&app, "GET", "/api/orders/9", "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn load_above_the_limit_is_shed_except_operations() {
    let (app, _) = assemble(&shell_with(&["--max-in-flight", "1"]), api());
    let busy = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, "GET", "/api/orders/9", "").await.status }
    });
    tokio::task::yield_now().await;
    let shed = ask(&app, "GET", "/api/orders/1", "").await;
    assert_eq!((shed.status, &shed.headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(ask(&app, "GET", "/health/live", "").await.status, 200);
    busy.abort();
    assert!(busy.await.is_err());
    let freed = tokio::time::timeout(Duration::from_secs(5), ask(&app, "GET", "/api/orders/1", ""));
    assert_eq!(freed.await.unwrap().status, 200);
}

#[tokio::test]
async fn the_document_is_complete() {
    let (app, _) = assemble(&shell_with(&[]), api());
    let document = ask(&app, "GET", "/openapi.json", "").await.json();
    assert_eq!(document["info"]["version"], "1.2.3");
    assert_eq!(document["info"]["license"]["name"], "MIT OR Apache-2.0");
    let paths = document["paths"].as_object().unwrap();
    for path in ["/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs", "/api/orders"] {
        assert!(paths.contains_key(path), "{path}");
    }
    let placing = &document["paths"]["/api/orders"]["post"]["responses"];
    for status in ["201", "400", "413", "415", "422", "500", "503"] {
        assert!(placing[status].is_object(), "{status}");
    }
    let dead_letters = &document["paths"]["/api/admin/dlq"]["get"];
    assert!(dead_letters["responses"]["401"]["content"]["application/problem+json"].is_object());
    assert!(dead_letters["security"][0]["admin_token"].is_array());
    assert!(document["components"]["schemas"]["Problem"]["properties"]["errors"].is_object());
    let ids: Vec<&str> = paths
        .values()
        .flat_map(|item| item.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    assert_references_resolve(&document, &document);
}

#[tokio::test]
async fn the_documentation_page_is_served_locally() {
    let (app, _) = assemble(&shell_with(&[]), api());
    assert_eq!(ask(&app, "GET", "/docs", "").await.headers["location"], "/docs/");
    let page = ask(&app, "GET", "/docs/", "").await;
    assert!(page.status == 200 && page.text.contains("swagger-ui"));
    let setup = ask(&app, "GET", "/docs/swagger-initializer.js", "").await;
    assert!(setup.text.contains("/openapi.json"));
}

fn assert_references_resolve(document: &Value, part: &Value) {
    match part {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
            }
            members.values().for_each(|member| assert_references_resolve(document, member));
        }
        Value::Array(items) => items.iter().for_each(|item| assert_references_resolve(document, item)),
        _ => {}
    }
}
