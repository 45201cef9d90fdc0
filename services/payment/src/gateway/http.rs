//! The gateway over HTTP: connections that are kept open, a time limit a call, and no more calls at a time
//! than the gateway will bear.

use std::time::Duration;

use contracts::{Money, PaymentId};
use futures_util::future::BoxFuture;
use messaging::Context;
use participant::edge::{Calls, Declines};
use reqwest::{Client, Request, RequestBuilder, Response, StatusCode, redirect};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use super::{GatewayError, Intent, PaymentGateway};
use crate::{
    config::GatewayArgs,
    domain::{Answer, Ask, DeclineCode, Reference},
};

/// A gateway that is there accepts a connection within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Our code for a charge that the gateway does not even put to the card.
const NOT_ACCEPTED: &str = "charge_not_accepted";

/// A card processor that speaks the protocol of our simulator.
#[derive(Debug)]
pub struct HttpGateway {
    /// Builds the requests.
    client: Client,
    /// Makes the calls.
    calls: Calls,
    base_url: String,
    turns: Semaphore,
    /// How long a call may take, whatever holds it up.
    limit: Duration,
    /// How long a call waits for its turn.
    queue: Duration,
}

#[derive(Serialize)]
struct ChargeBody<'a> {
    amount: i64,
    currency: &'a str,
    token: &'a str,
    order_id: String,
}

#[derive(Deserialize)]
struct ChargeView {
    charge_id: String,
    amount: i64,
    currency: String,
    refunded: bool,
}

#[derive(Deserialize)]
struct DeclineView {
    decline_code: String,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum VoidView {
    Refunded { charge_id: String },
    Voided,
}

/// An answer that cannot be the answer to what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Absurd(&'static str);

impl HttpGateway {
    /// `calls` makes the calls through the client that it is given.
    ///
    /// # Errors
    /// When the TLS or proxy configuration of this machine is unusable.
    pub fn new(settings: &GatewayArgs, calls: impl FnOnce(Client, Declines) -> Calls) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.gateway_timeout)
            .tcp_keepalive(Duration::from_secs(15))
            .pool_max_idle_per_host(settings.gateway_concurrency)
            .build()?;
        let base_url = settings.gateway_url.trim_end_matches('/').to_owned();
        Ok(HttpGateway {
            calls: calls(client.clone(), declined),
            client,
            base_url,
            turns: Semaphore::new(settings.gateway_concurrency.max(1)),
            limit: settings.gateway_timeout,
            queue: settings.gateway_patience,
        })
    }

    async fn charge(&self, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        let body = ChargeBody {
            amount: intent.amount.amount,
            currency: intent.amount.currency.as_str(),
            token: &intent.method,
            order_id: intent.order_id.to_string(),
        };
        let response = self.send(keyed(self.post("/v1/charges", context), intent.payment_id).json(&body)).await?;
        if response.status() == StatusCode::PAYMENT_REQUIRED {
            return match read(response).await {
                Ok(DeclineView { decline_code }) => Ok(Answer::Declined(DeclineCode(decline_code))),
                Err(_) => self.refused(intent, context).await,
            };
        }
        match accepted(response) {
            Ok(response) => read::<ChargeView>(response).await?.answer(intent.amount),
            Err(GatewayError::Rejected { .. }) => self.refused(intent, context).await,
            Err(error) => Err(error),
        }
    }

    /// This request is refused for good, which does not say what an earlier one has left under the key. A void does, and
    /// sees to it that nothing is charged.
    async fn refused(&self, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        match self.void(intent, context).await {
            Ok(Answer::Fenced) => Ok(Answer::Declined(DeclineCode(NOT_ACCEPTED.to_owned()))),
            // Nothing in a void is the customer's, so this is not about the charge.
            Err(error @ GatewayError::Rejected { .. }) => Err(unknown(error)),
            other => other,
        }
    }

    async fn refund(&self, intent: &Intent, charge: &Reference, context: &Context) -> Result<Answer, GatewayError> {
        let response = self.send(self.post(&format!("/v1/charges/{}/refund", charge.0), context)).await?;
        match read::<ChargeView>(accepted(response)?).await?.answer(intent.amount)? {
            given_back @ Answer::GivenBack(_) => Ok(given_back),
            _ => Err(unknown(Absurd("the refund was accepted and not made"))),
        }
    }

    async fn void(&self, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        let response = self.send(keyed(self.post("/v1/voids", context), intent.payment_id)).await?;
        Ok(match read(accepted(response)?).await? {
            VoidView::Refunded { charge_id } => Answer::GivenBack(Reference(charge_id)),
            VoidView::Voided => Answer::Fenced,
        })
    }

    fn post(&self, path: &str, context: &Context) -> RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.base_url));
        let request = request.header("traceparent", context.trace.to_string());
        match context.baggage_header() {
            Some(baggage) => request.header("baggage", baggage),
            None => request,
        }
    }

    /// The call's time limit begins when it is its turn. Who waits too long for that has not been asked for yet.
    async fn send(&self, request: RequestBuilder) -> Result<Response, GatewayError> {
        let turn = tokio::time::timeout(self.queue, self.turns.acquire()).await;
        let _turn = turn.map_err(|elapsed| GatewayError::Unavailable(elapsed.into()))?.map_err(unknown)?;
        let request = request.build().map_err(unknown)?;
        let call = tokio::time::timeout(self.limit, self.calls.clone().oneshot(request));
        call.await.map_err(unknown)?.map_err(|error| match error.is_connect() {
            true => GatewayError::Unavailable(error.into()),
            false => unknown(error),
        })
    }
}

impl PaymentGateway for HttpGateway {
    fn ask<'a>(
        &'a self,
        ask: &'a Ask,
        intent: &'a Intent,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Answer, GatewayError>> {
        match ask {
            Ask::Charge => Box::pin(self.charge(intent, context)),
            Ask::Refund(charge) => Box::pin(self.refund(intent, charge, context)),
            Ask::Void => Box::pin(self.void(intent, context)),
        }
    }
}

impl ChargeView {
    /// A stored answer may be older than the charge's refund, which it then tells, too.
    fn answer(self, asked: Money) -> Result<Answer, GatewayError> {
        if (self.amount, self.currency.as_str()) != (asked.amount, asked.currency.as_str()) {
            return Err(unknown(Absurd("the answer is about another amount")));
        }
        let reference = Reference(self.charge_id);
        Ok(if self.refunded { Answer::GivenBack(reference) } else { Answer::Captured(reference) })
    }
}

/// What the gateway's refusal of this request would look like: only a charge can be declined.
fn declined(request: &Request) -> Option<Response> {
    if request.url().path() != "/v1/charges" {
        return None;
    }
    let mut refusal = axum::http::Response::new(r#"{"decline_code": "fault_injected"}"#);
    *refusal.status_mut() = StatusCode::PAYMENT_REQUIRED;
    Some(refusal.into())
}

fn keyed(request: RequestBuilder, payment_id: PaymentId) -> RequestBuilder {
    request.header("Idempotency-Key", payment_id.to_string())
}

/// Lets only success through. Timeouts (408), throttling (425, 429) and the gateway's own failures leave the
/// outcome open. Refused credentials (401, 403, 407) are ours and the same for every payment: nothing is done until
/// they are put right. Any other 4xx is the last word on this request.
fn accepted(response: Response) -> Result<Response, GatewayError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    match (status.as_u16(), response.error_for_status()) {
        (401 | 403 | 407, Err(error)) => Err(GatewayError::Unavailable(error.into())),
        (408 | 425 | 429, Err(error)) => Err(unknown(error)),
        (status @ 400..500, Err(_)) => Err(GatewayError::Rejected { status }),
        (_, Err(error)) => Err(unknown(error)),
        (_, Ok(_)) => Err(unknown(Absurd("the answer is a redirection"))),
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, GatewayError> {
    response.json().await.map_err(unknown)
}

fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> GatewayError {
    GatewayError::Unknown(error.into())
}
