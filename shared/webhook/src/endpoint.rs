//! The endpoint: a [`Target`] that takes one event in one request.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use messaging::relay::{
    runs,
    target::{PendingRow, Published, Stop, Target},
};
use reqwest::{Client, StatusCode, Url, header::CONTENT_TYPE, redirect};
use serde_json::{Map, Value, json, value::RawValue};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::{Metrics, Secrets, WebhookArgs, signature::sign};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the endpoint does not accept an event now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It answered with an error, or began to handle the event and did not answer in time. This may be the event's fault, and counts.
    Failed(String),
    /// It cannot be reached, is overloaded, or does not know us: no event's fault.
    Away(String),
}

/// An HTTP endpoint that receives the events.
#[derive(Debug, Clone)]
pub struct Endpoint {
    client: Client,
    url: Url,
    secrets: Secrets,
    concurrency: usize,
    metrics: Metrics,
}

impl Endpoint {
    /// The endpoint of these settings, if it is switched on.
    ///
    /// # Errors
    /// When the HTTP client cannot be built on this machine.
    pub fn new(settings: &WebhookArgs, metrics: Metrics) -> Result<Option<Self>, reqwest::Error> {
        let (Some(url), Some(secrets)) = (settings.webhook_url.clone(), settings.webhook_secret.clone()) else {
            return Ok(None);
        };
        let concurrency = usize::from(settings.webhook_concurrency);
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.webhook_timeout)
            .tcp_keepalive(Duration::from_secs(15))
            .pool_max_idle_per_host(concurrency)
            .build()?;
        Ok(Some(Endpoint { client, url, secrets, concurrency, metrics }))
    }

    async fn post(&self, event: &PendingRow) -> Result<Uuid, Stop<Obstacle>> {
        let event_id = event.event_id;
        let (body, trace) = cloud_event(event).map_err(|error| Stop::Refused { event_id, error })?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the receiver compares it with its clock; nothing here depends on it"
        )]
        let timestamp = OffsetDateTime::now_utc().unix_timestamp();
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/cloudevents+json")
            .header("webhook-id", event_id.to_string())
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", sign(&self.secrets, event_id, timestamp, body.as_bytes()));
        if let Some(trace) = trace {
            request = request.header("traceparent", trace);
        }
        let answer = match request.body(body).send().await {
            Ok(response) => classify(response.status()),
            Err(error) if error.is_connect() => Answer::Away(chain(&error)),
            Err(error) => Answer::Failed(chain(&error)),
        };
        self.metrics.count(answer.outcome());
        match answer {
            Answer::Accepted => Ok(event_id),
            Answer::Refused(error) => Err(Stop::Refused { event_id, error }),
            Answer::Failed(error) => Err(Stop::NotNow { event_id, obstacle: Obstacle::Failed(error) }),
            Answer::Away(error) => Err(Stop::NotNow { event_id, obstacle: Obstacle::Away(error) }),
        }
    }
}

impl Target for Endpoint {
    type Receipt = Uuid;
    type Obstacle = Obstacle;

    /// Makes no further request once the endpoint is away.
    async fn publish(&mut self, events: &[PendingRow]) -> Published<Uuid, Obstacle> {
        let mut published = Published { receipts: Vec::with_capacity(events.len()), stops: Vec::new() };
        let mut stopped: Vec<&str> = Vec::new();
        let (this, away) = (&*self, AtomicBool::new(false));
        for run in runs(events) {
            let due = run.iter().filter(|event| !stopped.contains(&event.aggregate_id.as_str()));
            let requests = due.map(|event| {
                let away = &away;
                async move {
                    if away.load(Ordering::Relaxed) {
                        return None;
                    }
                    let answer = this.post(event).await;
                    if matches!(answer, Err(Stop::NotNow { obstacle: Obstacle::Away(_), .. })) {
                        away.store(true, Ordering::Relaxed);
                    }
                    Some((event, answer))
                }
            });
            let requests: Vec<_> = requests.collect();
            let mut answers = stream::iter(requests).buffer_unordered(this.concurrency);
            while let Some(answer) = answers.next().await {
                match answer {
                    Some((_, Ok(receipt))) => published.receipts.push(receipt),
                    Some((event, Err(stop))) => {
                        stopped.push(&event.aggregate_id);
                        published.stops.push(stop);
                    }
                    None => {}
                }
            }
            if away.load(Ordering::Relaxed) {
                break;
            }
        }
        published
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused(String),
    Failed(String),
    Away(String),
}

impl Answer {
    fn outcome(&self) -> &'static str {
        match self {
            Answer::Accepted => "accepted",
            Answer::Refused(_) => "refused",
            Answer::Failed(_) => "failed",
            Answer::Away(_) => "away",
        }
    }
}

/// Only what is certainly about this event's body is a refusal: a wrong address (404, 410), wrong credentials and a redirection
/// concern every event.
fn classify(status: StatusCode) -> Answer {
    let error = format!("the endpoint answered {status}");
    match status.as_u16() {
        200..300 => Answer::Accepted,
        400 | 413 | 415 | 422 => Answer::Refused(error),
        300..400 | 401 | 403 | 404 | 407 | 408 | 410 | 425 | 429 | 502..=504 => Answer::Away(error),
        _ => Answer::Failed(error),
    }
}

/// The request's body, which is the same in each attempt: a CloudEvent 1.0 in structured mode. Also its trace.
fn cloud_event(event: &PendingRow) -> Result<(String, Option<String>), String> {
    let stored: Map<String, Value> = serde_json::from_str(&event.headers).map_err(|e| e.to_string())?;
    let data: &RawValue = serde_json::from_str(&event.payload).map_err(|e| e.to_string())?;
    let mut attributes = Map::new();
    for (name, value) in &stored {
        if let Some(name) = name.strip_prefix("ce-") {
            attributes.insert(name.to_owned(), value.clone());
        }
    }
    let own = json!({
        "specversion": "1.0",
        "id": event.event_id,
        "type": event.event_type,
        "subject": event.aggregate_id,
        "partitionkey": event.aggregate_id,
        "sequence": event.aggregate_sequence.to_string(),
        "time": event.created_at.format(&Rfc3339).map_err(|e| e.to_string())?,
        "datacontenttype": "application/json",
    });
    attributes.extend(own.as_object().cloned().unwrap_or_default());
    if let Some(saga_id) = event.saga_id {
        attributes.insert("sagaid".to_owned(), json!(saga_id));
    }
    let mut body = Value::Object(attributes).to_string();
    // As it is stored: numbers keep all their digits.
    body.truncate(body.len() - 1);
    body.push_str(",\"data\":");
    body.push_str(data.get());
    body.push('}');
    Ok((body, stored.get("traceparent").and_then(Value::as_str).map(str::to_owned)))
}

/// The error and its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_about_the_body_is_a_refusal() {
        let of = |status: u16| classify(StatusCode::from_u16(status).expect("a status")).outcome();
        for (outcome, statuses) in [
            ("accepted", &[200, 202, 204][..]),
            ("refused", &[400, 413, 415, 422]),
            ("away", &[301, 302, 401, 403, 404, 407, 408, 410, 425, 429, 502, 503, 504]),
            ("failed", &[402, 405, 409, 418, 500, 501, 507]),
        ] {
            for status in statuses {
                assert_eq!(of(*status), outcome, "{status}");
            }
        }
    }

    #[test]
    fn the_body_is_a_cloud_event_whose_data_is_unchanged() {
        let event = PendingRow {
            event_id: Uuid::from_u128(7),
            position: 0,
            aggregate_id: "P-1".to_owned(),
            aggregate_sequence: 3,
            event_type: "PriceChanged.v1".to_owned(),
            subject: "evt.shop.PriceChanged".to_owned(),
            headers:
                r#"{"ce-source": "/services/shop", "ce-correlationid": "c", "traceparent": "00-1", "baggage": "b"}"#
                    .to_owned(),
            payload: r#"{"price": 12345678901234567890.10}"#.to_owned(),
            saga_id: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            republication: 0,
            attempts: 0,
        };
        let (body, trace) = cloud_event(&event).expect("JSON");
        assert!(body.ends_with(r#","data":{"price": 12345678901234567890.10}}"#), "{body}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&body["id"], &body["type"]), (&json!(event.event_id), &json!("PriceChanged.v1")));
        assert_eq!((&body["source"], &body["correlationid"]), (&json!("/services/shop"), &json!("c")));
        assert_eq!(
            (&body["subject"], &body["sequence"], &body["time"]),
            (&json!("P-1"), &json!("3"), &json!("1970-01-01T00:00:00Z"))
        );
        assert_eq!((trace.as_deref(), body.get("baggage")), (Some("00-1"), None));
    }
}
