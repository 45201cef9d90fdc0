//! A consumer's pull requests: one at a time, for as many messages as there is room for. So every message that the broker counts
//! as delivered is known here, and can be kept in progress. The client's own message stream buffers hundreds of them out of
//! reach.

use std::{future::pending, time::Duration};

use async_nats::{StatusCode, Subscriber, jetstream};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::unacked::Unacked;
use crate::{Bus, error::chain};

/// The longest interval of the broker's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);

pub(super) struct Pull {
    bus: Bus,
    subject: String,
    inbox: String,
    incoming: Subscriber,
    connects: u64,
    /// How many messages of the open request have not arrived yet.
    outstanding: usize,
    /// Why the request failed, after its last messages are returned.
    failed: Option<String>,
    /// Without any message by then the broker is considered unavailable.
    heartbeat_due: Instant,
}

impl Pull {
    pub(super) async fn begin(bus: &Bus, stream: &str, consumer: &str) -> Result<Self, String> {
        let connects = bus.connects();
        let inbox = bus.client.new_inbox();
        let incoming = bus.client.subscribe(inbox.clone()).await.map_err(|e| chain(&e))?;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        Ok(Pull {
            bus: bus.clone(),
            subject,
            inbox,
            incoming,
            connects,
            outstanding: 0,
            failed: None,
            heartbeat_due: Instant::now(),
        })
    }

    /// No messages of an earlier request are outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Requests this many messages.
    pub(super) async fn request(&mut self, messages: usize, expires: Duration) -> Result<(), String> {
        if messages == 0 {
            return Ok(());
        }
        let request = json!({
            "batch": messages,
            "expires": nanoseconds(expires),
            "idle_heartbeat": nanoseconds(HEARTBEAT.min(expires / 3)),
        });
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let sent = self.bus.client.publish_with_reply(subject, inbox, request.to_string().into()).await;
        sent.map_err(|e| chain(&e))?;
        self.outstanding = messages;
        self.heartbeat_due = Instant::now() + 2 * HEARTBEAT;
        Ok(())
    }

    /// The messages that have arrived, as soon as there are any; none when the request has ended and another one may be made.
    /// Never returns while no request is open.
    pub(super) async fn next(&mut self) -> Result<Vec<Unacked>, String> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.outstanding == 0 {
            return pending().await;
        }
        loop {
            let no_heartbeat = |_| "the broker does not answer".to_owned();
            let mut next = timeout_at(self.heartbeat_due, self.incoming.next()).await.map_err(no_heartbeat)?;
            self.heartbeat_due = Instant::now() + 2 * HEARTBEAT;
            let mut received = Vec::new();
            loop {
                match self.take(next) {
                    Ok(message) => received.extend(message),
                    Err(error) if received.is_empty() => return Err(error),
                    Err(error) => self.failed = Some(error),
                }
                if self.failed.is_some() {
                    break;
                }
                match self.incoming.next().now_or_never() {
                    Some(another) => next = another,
                    None => break,
                }
            }
            if self.outstanding == 0 || !received.is_empty() {
                return Ok(received);
            }
        }
    }

    /// Handles a message, or a status of the request.
    fn take(&mut self, message: Option<async_nats::Message>) -> Result<Option<Unacked>, String> {
        let message = message.ok_or("the connection is closed")?;
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                self.outstanding = self.outstanding.saturating_sub(1);
                let message = jetstream::Message { message, context: self.bus.jetstream.clone() };
                Ok(Some(Unacked::new(message, self.connects)))
            }
            StatusCode::IDLE_HEARTBEAT => Ok(None),
            StatusCode::NOT_FOUND | StatusCode::TIMEOUT => {
                self.outstanding = 0;
                Ok(None)
            }
            status => Err(format!("{status}: {}", message.description.unwrap_or_default())),
        }
    }

    /// The remaining messages of the open request, as [`Pull::next`], when no other request will be made.
    pub(super) async fn next_of_last_request(&mut self) -> Vec<Unacked> {
        self.next().await.unwrap_or_else(|_| {
            self.outstanding = 0;
            Vec::new()
        })
    }

    /// The messages that have arrived and were not read.
    pub(super) fn drain_buffered(mut self) -> Vec<Unacked> {
        let mut received = Vec::new();
        while let Some(Some(message)) = self.incoming.next().now_or_never() {
            received.extend(self.take(Some(message)).ok().flatten());
        }
        received
    }

    /// Whether the request was made on an earlier connection: the broker does not answer it on the new one.
    pub(super) fn is_lost(&self) -> bool {
        self.bus.connects() != self.connects
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
