//! Isolates requests from each other: a timeout for bodies, a limit of requests in progress, a request timeout, and a handler for
//! panics. A handler that is dropped at its timeout loses no write, because writes run detached.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{FromRequest as _, Request},
    http::{StatusCode, Version, header},
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use tokio::{sync::Semaphore, time::timeout};

use super::{PROBLEM_JSON, Problem, admin::is_admin_path, extract::unreadable_body, serve::READ_AHEAD};

/// The limits of [`receive`] and [`guard`].
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) request_timeout: Duration,
    pub(crate) body_read_timeout: Duration,
}

/// Middleware: refuses more headers than a connection reads ahead, and a request of HTTP/1.1 that does not name exactly one
/// host (RFC 9112, 3.2).
pub(crate) async fn check_headers<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let headers = request.headers();
    // Each has four more bytes: ": " and the line end.
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if size > READ_AHEAD {
        let detail = format!("The request's headers are longer than {READ_AHEAD} bytes.");
        return Problem::headers_too_large(detail).into_response();
    }
    if request.version() == Version::HTTP_11 && headers.get_all(header::HOST).iter().count() != 1 {
        return Problem::bad_request("A request of HTTP/1.1 has exactly one `Host` header.").into_response();
    }
    next(request).await
}

/// Middleware: reads the whole body, up to the body limit, before the request counts as in progress. So a slow client keeps only
/// its connection busy; it is answered 408.
pub(crate) async fn receive<F: Future<Output = Response>>(
    limits: &Limits,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if request.body().is_end_stream() {
        return next(request).await;
    }
    let (parts, body) = request.into_parts();
    let whole = Bytes::from_request(Request::from_parts(parts.clone(), body), &());
    match timeout(limits.body_read_timeout, whole).await {
        Ok(Ok(bytes)) => next(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(rejection)) => unreadable_body(rejection).into_response(),
        Err(_) => Problem::request_timeout("The request body did not arrive in time.").into_response(),
    }
}

/// Middleware: sheds load beyond the cap, answers 503 at the time limit and 500 after a panic.
pub(crate) async fn guard<F: Future<Output = Response>>(
    limits: &Limits,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let is_business = is_business(request.uri().path());
    let Ok(_permit) = is_business.then(|| limits.in_flight.try_acquire()).transpose() else {
        return Problem::unavailable("The service is overloaded. Try again.", 1).into_response();
    };
    let work = AssertUnwindSafe(next(request)).catch_unwind();
    match timeout(limits.request_timeout, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            tracing::error!(panic = panic_text(&*panic), "a handler panicked");
            Problem::internal_without_cause().into_response()
        }
        Err(_) => {
            tracing::warn!(limit = ?limits.request_timeout, "a request timed out");
            Problem::unavailable("The request took too long. It may still have its effect.", 1).into_response()
        }
    }
}

/// Middleware: turns every error response, also those of axum, into a problem with the request's path.
pub(crate) async fn describe_problems<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next(request).await;
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if is_foreign_error(&response) => Problem::new(response.status(), foreign_detail(response.status())),
        None => return response,
    };
    let body = Problem { instance: Some(path), ..problem }.body();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, axum::http::HeaderValue::from_static(PROBLEM_JSON));
    *response.body_mut() = body;
    response
}

/// Whether the load limit applies; operators need access to an overloaded service.
fn is_business(path: &str) -> bool {
    const OPERATIONS: [&str; 4] = ["/health/", "/metrics", "/openapi.json", "/docs"];
    !is_admin_path(path) && !OPERATIONS.iter().any(|prefix| path.starts_with(prefix))
}

fn is_foreign_error(response: &Response) -> bool {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return false;
    }
    let content_type = response.headers().get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    // A framework's own refusal is plain text.
    !content_type.is_some_and(|value| value.starts_with(b"application/") || value.starts_with(b"text/html"))
}

fn foreign_detail(status: StatusCode) -> &'static str {
    if status.is_server_error() {
        return "The service failed to answer this request.";
    }
    "The service does not accept this request."
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
