//! The `Idempotency-Key` header. A request that moves money is rejected without a valid one, before its body is read.

use axum::{extract::FromRequestParts, http::request::Parts};
use bootstrap::Problem;
use utoipa::IntoParams;

use crate::charge::IdempotencyKey;

const HEADER: &str = "Idempotency-Key";

/// The request's idempotency key.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
pub(super) struct Key(
    /// Names the charge; visible ASCII characters.
    #[param(value_type = String, min_length = 1, max_length = 255)]
    pub(super) IdempotencyKey,
);

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(HEADER).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Problem::bad_request("Send exactly one Idempotency-Key header."));
        };
        let key = value.to_str().ok().and_then(IdempotencyKey::parse);
        key.map(Self).ok_or_else(|| {
            Problem::bad_request(format!(
                "The Idempotency-Key must have 1 to {} visible ASCII characters.",
                IdempotencyKey::MAX_LENGTH
            ))
        })
    }
}
