//! Authentication of `/api/admin/*`, and of commands to participants of a saga: a bearer token, compared in constant time. It is checked by path before routing, so no admin
//! route is left unprotected and unknown ones are not revealed. With the public development token, requests of foreign web pages
//! (DNS rebinding) are refused by their `Host`.

use std::net::Ipv4Addr;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};

use super::Problem;
use crate::config::{DEVELOPMENT_ADMIN_TOKEN, Secret};

/// Paths that need the admin token.
pub(crate) const ADMIN_PREFIX: &str = "/api/admin";

/// Paths of commands to a participant of a saga, which only its coordinator gives; they need the token, too.
const COMMAND_PREFIX: &str = "/api/saga/";

/// Marks a request outside the administration that bears the admin token: an operator's, and not a customer's.
#[derive(Debug, Clone, Copy)]
pub struct ByOperator;

/// Middleware: 401 for a request to an admin path without a bearer token, 403 for one with a wrong token, and, where the
/// token is the public one, 403 for any request whose host may be the name of a foreign page.
pub(crate) async fn require_admin_token<F: Future<Output = Response>>(
    token: &Secret,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if token.expose() == DEVELOPMENT_ADMIN_TOKEN && may_be_rebound(request.headers()) {
        let detail =
            "With the public development token (ADMIN_TOKEN) only localhost and addresses are served as `Host`.";
        return Problem::forbidden(detail).into_response();
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    if !needs_token(request.uri().path()) {
        if given.is_some_and(|given| token.matches(given)) {
            request.extensions_mut().insert(ByOperator);
        }
        return next(request).await;
    }
    match given {
        None => Problem::unauthorized("This route needs the admin token: send `Authorization: Bearer <ADMIN_TOKEN>`.")
            .into_response(),
        Some(given) if !token.matches(given) => {
            Problem::forbidden("The admin token is not the one this service was started with.").into_response()
        }
        Some(_) => next(request).await,
    }
}

/// Whether the host is a public DNS name, which its owner can point to this machine: a browser then treats this service as part
/// of the owner's page (DNS rebinding). Names without a dot are local.
fn may_be_rebound(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let host = String::from_utf8_lossy(host);
    let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
    name.contains('.') && !name.starts_with('[') && name.parse::<Ipv4Addr>().is_err()
}

pub(crate) fn is_admin_path(path: &str) -> bool {
    path.strip_prefix(ADMIN_PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn needs_token(path: &str) -> bool {
    is_admin_path(path) || path.starts_with(COMMAND_PREFIX)
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{
        Router,
        body::Body,
        middleware::{self, Next},
        routing::get,
    };
    use tower::ServiceExt as _;

    use super::*;

    fn checked(app: Router, token: &'static str) -> Router {
        app.layer(middleware::from_fn(move |request: Request, next: Next| async move {
            require_admin_token(&Secret::new(token), request, |request| next.run(request)).await
        }))
    }

    async fn answer(path: &str, authorization: Option<&str>) -> Response {
        let app = Router::new()
            .route("/api/admin/dlq", get(|| async { "dead letters" }))
            .route("/api/orders", get(|| async { "orders" }));
        let app = checked(app, "s3cret");
        let mut request = Request::get(path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn without_a_bearer_token_the_answer_is_401() {
        for authorization in [None, Some("Basic czNjcmV0"), Some("Bearer"), Some("Bearer ")] {
            let response = answer("/api/admin/dlq", authorization).await;
            assert_eq!(response.status(), 401);
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        }
    }

    #[tokio::test]
    async fn a_wrong_token_is_403_and_the_right_one_is_accepted() {
        assert_eq!(answer("/api/admin/dlq", Some("Bearer s3cre")).await.status(), 403);
        assert_eq!(answer("/api/admin/dlq", Some("Bearer s3cret")).await.status(), 200);
        assert_eq!(answer("/api/admin/dlq", Some("bearer s3cret")).await.status(), 200);
    }

    #[tokio::test]
    async fn with_the_public_token_public_dns_names_are_refused() {
        let answer = async |token: &'static str, host: &str| {
            let app = Router::new().fallback(get(|| async { "a simulated fault" }));
            let app = checked(app, token);
            let ask = async |path: &str| {
                let request = Request::get(path).header(header::HOST, host);
                let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
                app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
            };
            let (admin, open) = (ask("/api/admin/faults").await, ask("/v1/faults").await);
            assert_eq!(admin, open, "{host}");
            admin
        };
        for own in ["localhost:8081", "order:8081", "127.0.0.1", "192.168.0.7:8081", "[::1]:8081", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(answer(DEVELOPMENT_ADMIN_TOKEN, own).await, 200, "{own}");
        }
        for foreign in ["evil.example", "evil.example:8081", "localhost.evil.example:80", "127.0.0.1.evil.example"] {
            assert_eq!(answer(DEVELOPMENT_ADMIN_TOKEN, foreign).await, 403, "{foreign}");
            assert_eq!(answer("s3cret", foreign).await, 200, "{foreign}");
        }
    }

    #[tokio::test]
    async fn unknown_admin_routes_are_guarded_and_other_routes_are_not() {
        assert_eq!(answer("/api/admin/unknown", None).await.status(), 401);
        assert_eq!(answer("/api/admin", None).await.status(), 401);
        assert_eq!(answer("/api/orders", None).await.status(), 200);
    }

    #[test]
    fn commands_need_the_token_and_sagas_can_be_read_without() {
        assert!(needs_token("/api/saga/payment/refund") && needs_token("/api/admin/dlq"));
        assert!(!needs_token("/api/sagas") && !needs_token("/api/sagas/summary"));
    }
}
