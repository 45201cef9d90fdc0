//! The gateway over HTTP: persistent connections, a time limit per call, and a limit of concurrent calls.

use std::time::Duration;

use contracts::{Money, PaymentId};
use futures_util::future::BoxFuture;
use messaging::Context;
use participant::{Calls, Declines};
use reqwest::{Client, Request, RequestBuilder, Response, StatusCode, redirect};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use super::{GatewayError, Intent, PaymentGateway};
use crate::{
    config::GatewayArgs,
    domain::{Answer, Ask, DeclineCode, Reference},
};

/// The time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Our code for a charge that the gateway rejects before it reaches the card.
const NOT_ACCEPTED: &str = "charge_not_accepted";

/// A client of the gateway simulator's protocol.
#[derive(Debug)]
pub struct HttpGateway {
    /// Builds the requests.
    client: Client,
    /// Makes the calls.
    calls: Calls,
    base_url: String,
    permits: Semaphore,
    /// The time limit of a call.
    limit: Duration,
    /// The time limit of waiting for a permit.
    queue_limit: Duration,
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

/// An answer that does not match its request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidAnswer(&'static str);

impl HttpGateway {
    /// `calls` wraps the client for the calls.
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
            permits: Semaphore::new(settings.gateway_concurrency.max(1)),
            limit: settings.gateway_timeout,
            queue_limit: settings.gateway_patience,
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

    /// This request is rejected permanently, which says nothing about an earlier one under the same key. A void ensures that
    /// nothing is charged, and reports what was.
    async fn refused(&self, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        match self.void(intent, context).await {
            Ok(Answer::Fenced) => Ok(Answer::Declined(DeclineCode(NOT_ACCEPTED.to_owned()))),
            // A void has no data of the customer, so its rejection is not about the charge.
            Err(error @ GatewayError::Rejected { .. }) => Err(unknown(error)),
            other => other,
        }
    }

    async fn refund(&self, intent: &Intent, charge: &Reference, context: &Context) -> Result<Answer, GatewayError> {
        let response = self.send(self.post(&format!("/v1/charges/{}/refund", charge.0), context)).await?;
        match read::<ChargeView>(accepted(response)?).await?.answer(intent.amount)? {
            refunded @ Answer::Refunded(_) => Ok(refunded),
            _ => Err(unknown(InvalidAnswer("the refund was accepted and not made"))),
        }
    }

    async fn void(&self, intent: &Intent, context: &Context) -> Result<Answer, GatewayError> {
        let response = self.send(keyed(self.post("/v1/voids", context), intent.payment_id)).await?;
        Ok(match read(accepted(response)?).await? {
            VoidView::Refunded { charge_id } => Answer::Refunded(Reference(charge_id)),
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

    /// The call's time limit begins when it has a permit. A call that gets no permit in time was not made.
    async fn send(&self, request: RequestBuilder) -> Result<Response, GatewayError> {
        let permit = tokio::time::timeout(self.queue_limit, self.permits.acquire()).await;
        let _permit = permit.map_err(|elapsed| GatewayError::Unavailable(elapsed.into()))?.map_err(unknown)?;
        let request = request.build().map_err(unknown)?;
        let call = tokio::time::timeout(self.limit, self.calls.make(request));
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
    /// A repeated charge returns the stored charge, which may have been refunded since.
    fn answer(self, asked: Money) -> Result<Answer, GatewayError> {
        if (self.amount, self.currency.as_str()) != (asked.amount, asked.currency.as_str()) {
            return Err(unknown(InvalidAnswer("the answer is about another amount")));
        }
        let reference = Reference(self.charge_id);
        Ok(if self.refunded { Answer::Refunded(reference) } else { Answer::Captured(reference) })
    }
}

/// The gateway's refusal of a request, for injected faults: only a charge can be declined.
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

/// Passes successful responses. After timeouts (408), throttling (425, 429) and failures of the gateway the outcome is
/// unknown. Rejected credentials (401, 403, 407) concern every payment, and had no effect. Any other 4xx is a permanent
/// rejection of this request.
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
        (_, Ok(_)) => Err(unknown(InvalidAnswer("the answer is a redirection"))),
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, GatewayError> {
    response.json().await.map_err(unknown)
}

fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> GatewayError {
    GatewayError::Unknown(error.into())
}
