//! `/mcp`: streamable HTTP without sessions, so that any replica may answer any request. The bearer token says who calls.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bootstrap::Problem;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::Tools;
use crate::{desk::Desk, operations::Who, watch::Board};

#[derive(Clone)]
struct Served {
    desk: Desk,
    board: Board,
}

pub(crate) fn routes(desk: Desk, board: Board) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(serve)).with_state(Served { desk, board })
}

/// The Model Context Protocol
///
/// The suite's operations as tools for an agent, by streamable HTTP without sessions. The bearer token is the viewer's, the
/// operator's or the admin's; the header `x-actor` names the caller in the records.
#[utoipa::path(post, path = "/mcp", tag = "mcp", operation_id = "mcp",
    request_body(content = Object, description = "A message of JSON-RPC"),
    responses((status = 200, description = "The answer", body = Object),
        (status = 202, description = "A notification was received"),
        (status = 401, description = "No token, or an unknown one", body = Problem, content_type = "application/problem+json")))]
async fn serve(State(served): State<Served>, request: Request) -> Response {
    let Some(who) = caller(&served.desk, request.headers()) else {
        let mut refused =
            Problem::unauthorized("Send `Authorization: Bearer` with a viewer's, operator's or admin's token, and in `x-actor`, if at all, a name.")
                .into_response();
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    };
    // A page of another site cannot read the answer, and must not send a request either.
    if request.headers().contains_key(header::ORIGIN) {
        return Problem::new(StatusCode::FORBIDDEN, "No page of a browser calls tools.").into_response();
    }
    let tools = Tools { desk: served.desk, board: served.board, who };
    // Which hosts are this console's was checked before.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts();
    let service =
        StreamableHttpService::new(move || Ok(tools.clone()), Arc::new(NeverSessionManager::default()), config);
    Box::pin(service.handle(request)).await.map(Body::new)
}

fn caller(desk: &Desk, headers: &HeaderMap) -> Option<Who> {
    let authorization = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = authorization.split_once(' ')?;
    let role = scheme.eq_ignore_ascii_case("bearer").then(|| desk.tokens.role(token.trim()))??;
    // One that is not a name is refused, not replaced.
    let named = headers.get("x-actor").map(|actor| actor.to_str().unwrap_or_default());
    Who::new(named.unwrap_or(&format!("mcp:{role:?}").to_lowercase()), role)
}
