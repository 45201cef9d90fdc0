//! Events that a test forges: published as the relay would, at any time and any number of times.

use async_nats::{HeaderMap, jetstream, jetstream::message::PublishMessage};
use contracts::{Currency, Money, OrderId, PAYMENT, PaymentId, order_fulfillment::PaymentProcessed};
use futures_util::StreamExt;
use saga::{Event, Service};
use uuid::Uuid;

use crate::TestSuite;

/// An event of a saga, with an id of its own.
#[derive(Debug, Clone)]
pub struct Forged {
    pub event_id: Uuid,
    pub saga_id: Uuid,
    subject: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Forged {
    pub fn new<E: Event>(publisher: Service, saga_id: Uuid, event: &E) -> Forged {
        let event_id = Uuid::now_v7();
        let mut headers = HeaderMap::new();
        headers.insert("ce-id", event_id.to_string());
        headers.insert("ce-type", E::TYPE.wire_name());
        headers.insert("ce-specversion", "1.0");
        headers.insert("ce-source", format!("/services/{publisher}"));
        headers.insert("ce-subject", event.aggregate_id());
        headers.insert("ce-sagaid", saga_id.to_string());
        headers.insert("ce-sagatype", "OrderFulfillment");
        headers.insert("ce-correlationid", "test");
        headers.insert("ce-sequence", "1");
        let body = serde_json::to_vec(event).expect("events are JSON");
        Forged { event_id, saga_id, subject: E::TYPE.subject(publisher), headers, body }
    }

    /// The event that would confirm the order.
    pub fn paid(order_id: OrderId, saga_id: Uuid) -> Forged {
        let (payment_id, amount) = (PaymentId::of(order_id), Money::new(100, Currency::USD));
        let gateway_reference = "forged".to_owned();
        Forged::new(PAYMENT, saga_id, &PaymentProcessed { order_id, payment_id, amount, gateway_reference })
    }

    /// A message of any kind, to any subject.
    pub fn bytes(subject: &str, headers: HeaderMap, body: Vec<u8>) -> Forged {
        Forged { event_id: Uuid::nil(), saga_id: Uuid::nil(), subject: subject.to_owned(), headers, body }
    }

    /// A message that was delivered before, without the headers that the broker added.
    pub fn again(subject: &str, original: &HeaderMap, body: impl Into<Vec<u8>>) -> Forged {
        let mut headers = HeaderMap::new();
        for (name, values) in original.iter().filter(|(name, _)| !name.to_string().starts_with("Nats-")) {
            values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
        }
        Forged::bytes(subject, headers, body.into())
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

impl TestSuite {
    pub async fn jetstream(&self) -> anyhow::Result<jetstream::Context> {
        Ok(jetstream::new(async_nats::connect(&self.nats_url).await?))
    }

    /// Publishes the event under a new message id, so that the broker does not deduplicate it.
    pub async fn publish(&self, event: &Forged) -> anyhow::Result<()> {
        self.publish_to(&self.jetstream().await?, event).await
    }

    /// The same over an open connection.
    pub async fn publish_to(&self, jetstream: &jetstream::Context, event: &Forged) -> anyhow::Result<()> {
        let message = PublishMessage::build()
            .payload(event.body.clone().into())
            .headers(event.headers.clone())
            .message_id(Uuid::now_v7().to_string());
        jetstream.send_publish(event.subject.clone(), message).await?.await?;
        Ok(())
    }

    /// Repeats each event `times` times as soon as it is published, until the task is aborted.
    pub async fn repeat_every_event(&self, times: usize) -> anyhow::Result<tokio::task::JoinHandle<()>> {
        let client = async_nats::connect(&self.nats_url).await?;
        let mut events = client.subscribe("events.>").await?;
        client.flush().await?;
        Ok(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let Some(original) = event.headers.filter(|headers| headers.get("repeated").is_none()) else {
                    continue;
                };
                let again = Forged::again(&event.subject, &original, event.payload).header("repeated", "true");
                for _ in 0..times {
                    let (subject, headers) = (again.subject.clone(), again.headers.clone());
                    let _ = client.publish_with_headers(subject, headers, again.body.clone().into()).await;
                }
            }
        }))
    }

    /// Publishes all events of a stream again, unchanged.
    pub async fn publish_all_again(&self, publisher: Service) -> anyhow::Result<u64> {
        let jetstream = self.jetstream().await?;
        let stream = jetstream.get_stream(publisher.stream()).await?;
        let state = &stream.cached_info().state;
        for sequence in state.first_sequence..=state.last_sequence {
            let stored = stream.get_raw_message(sequence).await?;
            self.publish_to(&jetstream, &Forged::again(&stored.subject, &stored.headers, stored.payload)).await?;
        }
        Ok(state.last_sequence + 1 - state.first_sequence)
    }
}
