//! Placing an order over HTTP.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::LOCATION},
};
use bootstrap::{Json, Problem, RequestContext, detached};
use contracts::charge;
use messaging::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    orders::{self, OrderBody},
    problem, wait,
};
use crate::{
    App,
    domain::WantedLine,
    placement::{self, Placed, Placement, Refusal, Style},
    store::KeyUse,
};

static IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A request to place an order. Prices are order's own; a client never sends one.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceOrder {
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "alice")]
    customer_id: String,
    #[schema(min_items = 1, max_items = 100)]
    #[serde(deserialize_with = "bootstrap::http::objects")]
    lines: Vec<WantedLine>,
    /// The card's token.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "tok_visa")]
    payment_method: String,
    /// A number in it is an integer of 64 bits or smaller than 2^53; others are refused, because they would be rounded.
    #[schema(value_type = Option<Object>)]
    shipping_address: Option<Map<String, Value>>,
}

/// Place an order
///
/// The answer is the order, PENDING; with `Prefer: wait=N` it is the order as its saga ended, or as it is after N
/// seconds. A repeat with the same `Idempotency-Key` and body answers the same order. Where customers must be known
/// (`CUSTOMERS_REQUIRED`), the order of an unknown or suspended one is 422.
#[utoipa::path(post, path = "/api/orders", tag = "orders", request_body = PlaceOrder,
    params(
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$", description = "1 to 128 visible ASCII characters, scoped to the customer"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, N up to 30 seconds"),
    ),
    responses(
        (status = 201, description = "Accepted", body = OrderBody,
            headers(("Location" = String, description = "The order"), ("Preference-Applied" = String, description = "The wait, if one was asked for"))),
        (status = 200, description = "Placed before under this key", body = OrderBody,
            headers(("Idempotency-Replayed" = String, description = "true"))),
        (status = 409, description = "A request with this key is in flight", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn place_order(
    State(app): State<App>,
    context: RequestContext,
    headers: HeaderMap,
    Json(wanted): Json<PlaceOrder>,
) -> Result<(StatusCode, HeaderMap, Json<OrderBody>), Problem> {
    let placed = accept(&app, context, &headers, wanted, Style::Choreographed).await?;
    let (status, mut answer) = answer(&placed)?;
    let order_id = placed.order_id();
    let preferred = wait::preferred(&headers);
    if let Some(seconds) = preferred {
        // The order is accepted even if the wait for its end fails.
        if let Err(problem) = wait::until_ended(&app, order_id, seconds).await {
            tracing::warn!(%order_id, %problem, "the wait for the order's end failed");
        }
        answer.insert(wait::PREFERENCE_APPLIED.clone(), wait::applied(seconds));
    }
    let order = match placed {
        // Just accepted: the answer needs no database connection.
        Placed::New { order, priced, .. } if preferred.is_none() => orders::body(*order, priced.lines),
        Placed::New { order, priced, .. } => match orders::read(&app, order_id).await {
            Ok(ended) => ended,
            Err(_) => orders::body(*order, priced.lines),
        },
        Placed::Replayed(_) => orders::read(&app, order_id).await?,
    };
    Ok((status, answer, Json(order)))
}

/// Checks the request, and places the order.
pub(super) async fn accept(
    app: &App,
    context: RequestContext,
    headers: &HeaderMap,
    wanted: PlaceOrder,
    style: Style,
) -> Result<Placed, Problem> {
    wanted.check()?;
    let key = idempotency_key(headers)?;
    if key.is_none() {
        app.admit(style).inspect_err(|_| app.intake.count_refused())?;
    }
    let context = Context::of_request(context.correlation_id, &context.traceparent);
    let placement = wanted.into_placement(context, key, style);
    let shared = app.clone();
    let outcome = match app.participant.may_group_commit() {
        true => app.placements(style).write(placement, move |all| placement::place(shared, style, all)).await?,
        false => {
            detached(async move { Ok::<_, Problem>(placement::place_alone(shared, style, placement).await) }).await?
        }
    };
    if matches!(outcome, Err(Refusal::NotAdmitted(_))) {
        app.intake.count_refused();
    }
    Ok(outcome?)
}

/// The status and the headers that say what became of a request.
pub(super) fn answer(placed: &Placed) -> Result<(StatusCode, HeaderMap), Problem> {
    let location = (LOCATION, location(placed.order_id())?);
    Ok(match placed {
        Placed::New { .. } => (StatusCode::CREATED, HeaderMap::from_iter([location])),
        Placed::Replayed(_) => {
            let replayed = (IDEMPOTENCY_REPLAYED.clone(), HeaderValue::from_static("true"));
            (StatusCode::OK, HeaderMap::from_iter([replayed]))
        }
    })
}

impl PlaceOrder {
    /// Checks what needs no lookup.
    fn check(&self) -> Result<(), Problem> {
        let named = |pointer: &str, text: &str| {
            let detail = format!("1 to {} characters, none of them control characters.", charge::MAX_NAME);
            (!charge::is_name(text)).then(|| (pointer.to_owned(), detail))
        };
        let rounded = self.shipping_address.iter().flat_map(Map::values).any(is_rounded).then(|| {
            let detail = "A number in it is too large to be kept exactly. Send it as a text.".to_owned();
            ("/shipping_address".to_owned(), detail)
        });
        let wrong = [named("/customer_id", &self.customer_id), named("/payment_method", &self.payment_method), rounded];
        let mut wrong = wrong.into_iter().flatten();
        match wrong.next() {
            None => Ok(()),
            Some((pointer, detail)) => {
                Err(wrong.fold(Problem::invalid(pointer, detail), |p, (pointer, detail)| p.with_error(pointer, detail)))
            }
        }
    }

    fn into_placement(self, context: Context, key: Option<String>, style: Style) -> Placement {
        let key = key.map(|key| {
            // Equal for equal requests, independent of their formatting.
            let mut canonical = serde_json::to_vec(&self).unwrap_or_default();
            canonical.extend(style.mark());
            KeyUse { customer_id: self.customer_id.clone(), key, fingerprint: Sha256::digest(canonical).to_vec() }
        });
        Placement {
            context,
            customer_id: self.customer_id,
            lines: self.lines,
            payment_method: self.payment_method,
            shipping_address: self.shipping_address.map(Value::Object),
            key,
        }
    }
}

/// Whether a number may have been rounded when it was parsed: from 2^53 on not every integer is a double.
fn is_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_none_or(|n| n.abs() >= 2_f64.powi(53)),
        Value::Array(items) => items.iter().any(is_rounded),
        Value::Object(members) => members.values().any(is_rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let valid = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if valid && values.next().is_none() {
        return Ok(Some(text.to_owned()));
    }
    Err(Problem::bad_request("There may be one Idempotency-Key, of 1 to 128 visible ASCII characters."))
}

fn location(order_id: Uuid) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(format!("/api/orders/{order_id}")).map_err(|e| Problem::internal(&e))
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unacceptable(objections) => {
                objections.into_iter().fold(Problem::unprocessable("The order cannot be accepted as it is."), |p, o| {
                    p.with_error(o.pointer, o.detail)
                })
            }
            Refusal::NotAdmitted(problem) => problem,
            Refusal::KeyInFlight => Problem::conflict("A request with this Idempotency-Key is in progress."),
            Refusal::KeyReused => {
                Problem::unprocessable("This Idempotency-Key was used for an order with another body.")
            }
            Refusal::Failed(error) => problem(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_idempotency_keys_are_refused() {
        let keys = |keys: &[&'static str]| {
            let pairs =
                keys.iter().map(|key| (HeaderName::from_static("idempotency-key"), HeaderValue::from_static(key)));
            idempotency_key(&pairs.collect())
        };
        assert_eq!(keys(&[]), Ok(None));
        assert_eq!(keys(&["a"]), Ok(Some("a".to_owned())));
        for wrong in [&["a", "b"][..], &["a", "a"], &[""], &["a b"]] {
            assert_eq!(keys(wrong).map_err(|problem| problem.status), Err(StatusCode::BAD_REQUEST), "{wrong:?}");
        }
    }

    #[test]
    fn rounded_numbers_are_detected() {
        let read = |text: &str| is_rounded(&serde_json::from_str(text).expect("JSON"));
        for kept in ["18446744073709551615", "-9223372036854775808", "0.5", "1e15", "[{\"zip\": 12345}]", "\"1e99\""] {
            assert!(!read(kept), "{kept}");
        }
        for rounded in ["18446744073709551616", "-9223372036854775809", "1e300", "{\"a\": [12345678901234567890123]}"] {
            assert!(read(rounded), "{rounded}");
        }
    }
}
