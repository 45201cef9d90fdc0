//! Errors as RFC 9457 problem details. A problem tells the client what it can do and reveals no internals; the cause of an
//! internal failure is logged here, once.

use std::{error::Error, fmt};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::Json;

/// The media type of every error response.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A JSON body or an error response.
pub type JsonResult<T> = Result<Json<T>, Problem>;

/// An error response (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// A URI naming the kind of problem; `about:blank` when the status says it all.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "about:blank")]
    pub kind: &'static str,
    /// A short summary, the same for every problem of this kind.
    #[schema(value_type = String, example = "Unprocessable Content")]
    pub title: &'static str,
    /// The HTTP status code.
    #[serde(serialize_with = "status_as_number")]
    #[schema(value_type = u16, example = 422)]
    pub status: StatusCode,
    /// What went wrong this time and how to put it right.
    pub detail: String,
    /// The path of the request; filled in by the shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The single faults of an input, when there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    /// Seconds after which a retry may succeed; sent as `Retry-After`.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// One fault of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer (RFC 6901) to the value in the body, for example `/lines/0/quantity`; for a parameter its
    /// name after a slash.
    pub pointer: String,
    /// What is wrong with the value.
    pub detail: String,
}

impl Problem {
    /// A problem of the given status whose kind is `about:blank`.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: title_of(status),
            status,
            detail: detail.into(),
            instance: None,
            errors: Vec::new(),
            retry_after: None,
        }
    }

    /// 422 for a single value, at a JSON pointer such as `/lines/0/quantity`.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::unprocessable(detail.clone()).with_error(pointer, detail)
    }

    /// 500: logs the error chain and reveals nothing of it to the client.
    pub fn internal(cause: &(dyn Error + 'static)) -> Self {
        tracing::error!(error = %chain(cause), "request failed");
        Self::internal_without_cause()
    }

    /// 503: a dependency is unavailable or the service is overloaded; the same request may succeed after `retry_after`
    /// seconds.
    pub fn unavailable(detail: impl Into<String>, retry_after: u32) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// Adds a fault of the input.
    #[must_use]
    pub fn with_error(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    pub(crate) fn internal_without_cause() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The service failed to answer this request. The failure has been logged.",
        )
    }

    pub(crate) fn body(&self) -> Body {
        Body::from(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A constructor for each status without further members.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident $status:ident,)*) => {
        impl Problem {
            $($(#[$doc])* pub fn $name(detail: impl Into<String>) -> Self {
                Self::new(StatusCode::$status, detail)
            })*
        }
    };
}

statuses! {
    /// 400: the request is malformed.
    bad_request BAD_REQUEST,
    /// 401: credentials are missing; sent with `WWW-Authenticate`.
    unauthorized UNAUTHORIZED,
    /// 403: the credentials are not sufficient.
    forbidden FORBIDDEN,
    /// 404: there is no such resource.
    not_found NOT_FOUND,
    /// 405: the resource does not support this method.
    method_not_allowed METHOD_NOT_ALLOWED,
    /// 408: the client took too long to send its request.
    request_timeout REQUEST_TIMEOUT,
    /// 409: the resource's present state forbids it.
    conflict CONFLICT,
    /// 413: the body is larger than the service accepts.
    content_too_large PAYLOAD_TOO_LARGE,
    /// 415: the body is not JSON.
    unsupported_media_type UNSUPPORTED_MEDIA_TYPE,
    /// 422: the request is well-formed, but its content cannot be accepted.
    unprocessable UNPROCESSABLE_ENTITY,
    /// 431: the headers are larger than the service accepts.
    headers_too_large REQUEST_HEADER_FIELDS_TOO_LARGE,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The shell reads the problem from here and adds the request's path.
        response.extensions_mut().insert(self);
        response
    }
}

/// An unavailable, overloaded or stopping database and a lost race for locks are 503; other errors are 500.
impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        if !is_unavailable(&error) {
            return Self::internal(&error);
        }
        tracing::warn!(error = %chain(&error), "the database could not serve a request");
        Self::unavailable("The database cannot serve this request at present. Try again.", 1)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.title, self.detail)
    }
}

impl Error for Problem {}

/// An error and all its causes in one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors repeat their source in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed
        | sqlx::Error::Protocol(_)
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(refusal) => refusal.code().is_some_and(|code| is_transient(&code)),
        _ => false,
    }
}

/// SQLSTATEs (PostgreSQL manual, appendix A) of transient failures: connection exceptions, a refused login, a missing or
/// closed database, a server without resources or in shutdown, a standby, deadlocks, serialization
/// failures, lock and statement timeouts.
fn is_transient(code: &str) -> bool {
    const CLASSES: [&str; 5] = ["08", "28", "53", "57", "58"];
    const CODES: [&str; 8] = ["25006", "25P03", "3D000", "40001", "40P01", "55000", "55P03", "XX001"];
    CODES.contains(&code) || CLASSES.iter().any(|class| code.starts_with(class))
}

fn title_of(status: StatusCode) -> &'static str {
    match status {
        // RFC 9110's names, where the `http` crate still has older ones.
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        _ => status.canonical_reason().unwrap_or("Error"),
    }
}

fn status_as_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_serialized_as_rfc_9457() {
        let problem = Problem::invalid("/lines/0/quantity", "must be at least 1");
        assert_eq!(
            serde_json::to_value(&problem).unwrap(),
            json!({
                "type": "about:blank",
                "title": "Unprocessable Content",
                "status": 422,
                "detail": "must be at least 1",
                "errors": [{"pointer": "/lines/0/quantity", "detail": "must be at least 1"}],
            })
        );
    }

    #[test]
    fn an_unavailable_service_sends_retry_after() {
        let response = Problem::unavailable("later", 3).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "3");
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
    }

    #[test]
    fn an_exhausted_pool_and_a_lost_connection_are_503() {
        let lost = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        for error in [sqlx::Error::PoolTimedOut, lost] {
            let problem = Problem::from(error);
            assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(problem.retry_after.is_some());
        }
        assert!(is_transient("57P01") && is_transient("40P01") && !is_transient("23505"));
    }

    #[test]
    fn other_database_errors_are_500_and_reveal_nothing() {
        let problem = Problem::from(sqlx::Error::ColumnNotFound("card_number".to_owned()));
        assert_eq!(problem.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!problem.detail.contains("card_number"));
    }
}
