//! Composes a service's routes with the shell's middleware. Its order matters: the context is outermost, so that every response
//! carries it; the admin token is checked before any work; limits are innermost.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{Method, Uri},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use tokio::sync::Semaphore;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Problem, ServiceInfo, admin, context,
    guard::{self, Limits},
    observe::{self, HttpMetrics},
    openapi, operations,
};
use crate::{
    config::{HttpArgs, Secret},
    metrics::Metrics,
    readiness::Readiness,
};

/// The shell's view of a service.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The identity of the service.
    pub service: ServiceInfo,
    /// The state of its dependencies.
    pub readiness: Readiness,
    /// Its metrics.
    pub metrics: Metrics,
    admin_token: Secret,
    body_limit: usize,
    limits: Limits,
    http_metrics: HttpMetrics,
}

impl Shell {
    /// A shell; registers the HTTP metrics, so make one per service.
    pub fn new(service: ServiceInfo, args: &HttpArgs, readiness: Readiness, metrics: Metrics) -> Self {
        Self {
            service,
            http_metrics: HttpMetrics::register(&metrics),
            readiness,
            metrics,
            admin_token: args.admin_token.clone(),
            body_limit: args.body_limit,
            limits: Limits {
                in_flight: Arc::new(Semaphore::new(args.max_in_flight)),
                request_timeout: args.request_timeout,
                body_read_timeout: args.body_read_timeout,
            },
        }
    }
}

/// The finished application and its complete OpenAPI document.
pub fn assemble(shell: &Shell, api: OpenApiRouter) -> (Router, OpenApi) {
    let (_, described) = operations::described_routes().split_for_parts();
    let (router, document) = OpenApiRouter::with_openapi(openapi::openapi(&shell.service))
        .merge(api)
        .merge(operations::vital_routes(shell))
        .split_for_parts();
    let mut document = document.merge_from(described);
    openapi::add_common_answers(&mut document);
    openapi::exclude_nul(&mut document);
    let router = router.merge(operations::description_routes(&document));
    (layered(shell, router.fallback(not_found)), document)
}

/// The routes during start: health and metrics; all others are 503.
pub fn starting(shell: &Shell) -> Router {
    let (router, _) = operations::vital_routes(shell).split_for_parts();
    layered(shell, router.fallback(still_starting))
}

fn layered(shell: &Shell, router: Router) -> Router {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::new(shell.clone()), within))
        .layer(DefaultBodyLimit::max(shell.body_limit))
}

/// The middleware as one layer, but for the body limit, which only marks the request: axum copies each layer, with all that are
/// inside it, several times a request.
async fn within(State(shell): State<Arc<Shell>>, request: Request, next: Next) -> Response {
    let Shell { admin_token, limits, http_metrics, .. } = &*shell;
    let guarded = |request| guard::guard(limits, request, |request| next.run(request));
    let received = |request| guard::receive(limits, request, guarded);
    let admitted = |request| admin::require_admin_token(admin_token, request, received);
    let checked = |request| guard::check_headers(request, admitted);
    let described = |request| guard::describe_problems(request, checked);
    let observed = |request| observe::observe(http_metrics, request, described);
    context::with_request_context(request, observed).await
}

async fn not_found(uri: Uri) -> Problem {
    Problem::not_found(format!("There is no resource at {}.", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path = uri.path();
    Problem::method_not_allowed(format!("{path} does not support {method}; see the `Allow` header."))
}

async fn still_starting() -> Problem {
    Problem::unavailable("The service is starting: it waits for its dependencies.", 1)
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
