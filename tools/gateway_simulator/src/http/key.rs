//! The `Idempotency-Key` header: without a usable one nothing that moves money is even looked at.

use axum::{extract::FromRequestParts, http::request::Parts};
use bootstrap::Problem;
use utoipa::{
    IntoParams,
    openapi::{
        ObjectBuilder, Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use crate::charge::IdempotencyKey;

const HEADER: &str = "Idempotency-Key";

/// The request's idempotency key.
pub(super) struct Key(pub(super) IdempotencyKey);

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

impl IntoParams for Key {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(IdempotencyKey::MAX_LENGTH))
            .build();
        let header = ParameterBuilder::new()
            .name(HEADER)
            .parameter_in(ParameterIn::Header)
            .required(Required::True)
            .description(Some("Names the charge; visible ASCII characters"))
            .schema(Some(schema))
            .build();
        vec![header]
    }
}
