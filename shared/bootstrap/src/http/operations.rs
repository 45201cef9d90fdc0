//! The operational routes of every service: health, metrics, and the API description.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use serde::Serialize;
use utoipa::{ToSchema, openapi::OpenApi};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::Config;

use super::{Json, PROBLEM_JSON, Problem, Shell};
use crate::{metrics, readiness::Check};

/// Health and metrics, which are served from the start.
pub(crate) fn vital_routes(shell: &Shell) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(health_live))
        .routes(routes!(health_ready))
        .routes(routes!(health_serving))
        .routes(routes!(metrics))
        .with_state(shell.clone())
}

/// Documents the routes that describe the service; they are served by [`description_routes`].
pub(crate) fn described_routes() -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(openapi_document)).routes(routes!(docs))
}

/// Serves the finished document and a page to read and try it.
pub(crate) fn description_routes(document: &OpenApi) -> axum::Router {
    let text: Arc<str> = serde_json::to_string(document).unwrap_or_default().into();
    let page = Arc::new(Config::new(["/openapi.json"]));
    let file = get(|file: Option<Path<String>>| async move { docs_file(file, page) });
    axum::Router::new()
        .route("/openapi.json", get(|| async move { ([(header::CONTENT_TYPE, "application/json")], text.to_string()) }))
        .route("/docs", get(docs))
        .route("/docs/", file.clone())
        .route("/docs/{*file}", file)
}

/// The service is ready, with the state of each dependency.
#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    /// Always true in this answer.
    ready: bool,
    /// Every dependency by name.
    checks: BTreeMap<String, Check>,
}

/// The service is not ready, with the state of each dependency: a problem with two further members.
#[derive(Debug, Serialize, ToSchema)]
struct NotReady {
    #[serde(flatten)]
    problem: Problem,
    /// Always false in this answer.
    ready: bool,
    /// Every dependency by name.
    checks: BTreeMap<String, Check>,
}

/// Whether the process runs.
#[utoipa::path(
    get,
    path = "/health/live",
    tag = "operations",
    responses((status = 200, description = "The process runs", body = String, content_type = "text/plain"))
)]
async fn health_live() -> &'static str {
    "live"
}

/// Whether the service can do its work, with each dependency.
#[utoipa::path(
    get,
    path = "/health/ready",
    tag = "operations",
    responses(
        (status = 200, description = "Every dependency can be used", body = Ready),
        (status = 503, description = "A dependency cannot be used; see `checks`", body = NotReady,
            content_type = PROBLEM_JSON),
    )
)]
async fn health_ready(State(shell): State<Shell>) -> Response {
    let checks = shell.readiness.snapshot();
    let failing: Vec<&str> = checks.iter().filter(|(_, check)| !check.ok).map(|(name, _)| name.as_str()).collect();
    if failing.is_empty() {
        return Json(Ready { ready: true, checks }).into_response();
    }
    let mut problem = Problem::unavailable(format!("Not ready: {}.", failing.join(", ")), 1);
    problem.instance = Some("/health/ready".to_owned());
    let body = Json(NotReady { problem, ready: false, checks });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON)),
        (header::RETRY_AFTER, HeaderValue::from_static("1")),
    ];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}

/// Whether this replica can answer requests, for load balancers: also while the broker or a consumer fails, because what is
/// accepted then is published later.
#[utoipa::path(
    get,
    path = "/health/serving",
    tag = "operations",
    responses(
        (status = 200, description = "Requests are answered", body = String, content_type = "text/plain"),
        (status = 503, description = "The service starts, or its database does not answer", body = Problem,
            content_type = PROBLEM_JSON),
    )
)]
async fn health_serving(State(shell): State<Shell>) -> Result<&'static str, Problem> {
    match shell.readiness.is_serving() {
        true => Ok("serving"),
        false => Err(Problem::unavailable("The service starts, or its database does not answer.", 1)),
    }
}

/// The service's metrics as OpenMetrics text.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    responses((status = 200, description = "All metrics", body = String, content_type = metrics::CONTENT_TYPE))
)]
async fn metrics(State(shell): State<Shell>) -> Result<impl IntoResponse, Problem> {
    let text = shell.metrics.encode().map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operations",
    responses((status = 200, description = "The OpenAPI document", body = Object))
)]
async fn openapi_document() -> Json<()> {
    // Never served: `description_routes` answers with the finished document, which exists only after this
    // route has been documented.
    Json(())
}

/// A page to read and try the API.
#[utoipa::path(
    get,
    path = "/docs",
    tag = "operations",
    responses((status = 303, description = "The page is at `/docs/`"))
)]
async fn docs() -> Redirect {
    Redirect::to("/docs/")
}

fn docs_file(file: Option<Path<String>>, page: Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(file.as_deref().map_or("", String::as_str), page) {
        Ok(Some(file)) => ([(header::CONTENT_TYPE, file.content_type)], file.bytes.into_owned()).into_response(),
        Ok(None) => Problem::not_found("There is no such page.").into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot serve the documentation page");
            Problem::internal_without_cause().into_response()
        }
    }
}
