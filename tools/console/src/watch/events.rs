//! The events of the suite, docs/asyncapi.json.

use axum::{http::header, response::IntoResponse};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(asyncapi))
}

/// Every event of the suite: its subject, headers and body, who publishes it, and who consumes it.
#[utoipa::path(get, path = "/asyncapi.json", tag = "operations", operation_id = "asyncapi",
    responses((status = 200, description = "The AsyncAPI document", body = Object)))]
async fn asyncapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("../../../../docs/asyncapi.json"))
}
