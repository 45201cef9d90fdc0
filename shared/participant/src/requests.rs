//! Fault injection for incoming requests: a middleware around the business routes.

use std::io;

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bootstrap::Problem;
use bytes::Bytes;
use faults::{FaultPoint, Faults, Pass, Subject};
use futures_util::stream;
use serde_json::Value;

/// More than the HTTP shell accepts as a body.
const BODY_LIMIT: usize = 1 << 20;

/// Middleware: the point `http_in`.
pub(crate) async fn hit_request(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    if !faults.is_armed() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return Problem::bad_request(error.to_string()).into_response(),
    };
    let subject = subject(parts.uri.path(), &body);
    let passed = faults.at(FaultPoint::HttpIn, || subject).await;
    let request = Request::from_parts(parts, Body::from(body));
    match passed {
        Ok(Pass::Drop) => {
            let (parts, _) = next.run(request).await.into_parts();
            Response::from_parts(parts, aborted_body())
        }
        Ok(_) => next.run(request).await,
        Err(injected) => Problem::internal(&injected).into_response(),
    }
}

/// A body that fails at once, which aborts the connection.
fn aborted_body() -> Body {
    let aborted = io::Error::new(io::ErrorKind::ConnectionAborted, "the answer is aborted by an injected fault");
    Body::from_stream(stream::iter([Err::<Bytes, _>(aborted)]))
}

/// The subject that fault scopes are matched with, from the request.
fn subject(path: &str, body: &[u8]) -> Subject {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut subject = Subject { customer_id: body["customer_id"].as_str().map(str::to_owned), ..Subject::default() };
    let lines = body["lines"].as_array().into_iter().flatten();
    subject.skus = lines.chain([&body]).filter_map(|line| line["sku"].as_str()).map(str::to_owned).collect();
    let mut segments = path.split('/').skip(2);
    match (segments.next(), segments.next()) {
        (Some("orders" | "reservations"), Some(id)) => subject.order_id = id.parse().ok(),
        (Some("sagas"), Some(id)) => subject.saga_id = id.parse().ok(),
        (Some("products"), Some(sku)) => subject.skus.push(sku.to_owned()),
        _ => {}
    }
    subject
}
