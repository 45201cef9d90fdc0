//! What a consumer asks the broker for: one request at a time, for as many messages as there is room for. So whatever the
//! broker counts as delivered is in hand, where it can be told that work goes on; the client's own stream of messages keeps
//! some hundred of them to itself.

use std::{future::pending, time::Duration};

use async_nats::{StatusCode, Subscriber, jetstream};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::held::Held;
use crate::{Bus, error::chain};

/// How long one request stays open, and how often the broker says that it is still there.
const EXPIRES: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(2);

pub(super) struct Pull {
    bus: Bus,
    subject: String,
    inbox: String,
    incoming: Subscriber,
    connects: u64,
    /// How many messages of the open request are still to come.
    due: usize,
    /// Why there will be nothing more.
    failed: Option<String>,
    /// Who has said nothing until then is gone.
    silent_at: Instant,
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
            due: 0,
            failed: None,
            silent_at: Instant::now(),
        })
    }

    /// Asks for so many messages, unless others are still to come.
    pub(super) async fn ask(&mut self, messages: usize) -> Result<(), String> {
        if self.due > 0 || messages == 0 {
            return Ok(());
        }
        let request = json!({
            "batch": messages,
            "expires": nanoseconds(EXPIRES),
            "idle_heartbeat": nanoseconds(HEARTBEAT),
        });
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let asked = self.bus.client.publish_with_reply(subject, inbox, request.to_string().into()).await;
        asked.map_err(|e| chain(&e))?;
        self.due = messages;
        self.silent_at = Instant::now() + 2 * HEARTBEAT;
        Ok(())
    }

    /// What has come of what was asked for, as soon as there is something; nothing when the request has ended, and another
    /// one may be made. Where none is open it waits for ever.
    pub(super) async fn next(&mut self) -> Result<Vec<Held>, String> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.due == 0 {
            return pending().await;
        }
        loop {
            let silent = |_| "the broker does not answer".to_owned();
            let mut next = timeout_at(self.silent_at, self.incoming.next()).await.map_err(silent)?;
            self.silent_at = Instant::now() + 2 * HEARTBEAT;
            let mut come = Vec::new();
            loop {
                match self.take(next) {
                    Ok(held) => come.extend(held),
                    Err(error) if come.is_empty() => return Err(error),
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
            if self.due == 0 || !come.is_empty() {
                return Ok(come);
            }
        }
    }

    /// A message, or what the broker says about the request.
    fn take(&mut self, message: Option<async_nats::Message>) -> Result<Option<Held>, String> {
        let message = message.ok_or("the connection is closed")?;
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                self.due = self.due.saturating_sub(1);
                let message = jetstream::Message { message, context: self.bus.jetstream.clone() };
                Ok(Some(Held::new(message, self.connects)))
            }
            StatusCode::IDLE_HEARTBEAT => Ok(None),
            StatusCode::NOT_FOUND | StatusCode::TIMEOUT => {
                self.due = 0;
                Ok(None)
            }
            status => Err(format!("{status}: {}", message.description.unwrap_or_default())),
        }
    }

    /// What still comes of the open request, as [`Pull::next`], while no other will be made.
    pub(super) async fn next_of_the_last(&mut self) -> Vec<Held> {
        match self.next().await {
            Ok(come) => come,
            Err(_) => {
                self.due = 0;
                Vec::new()
            }
        }
    }

    /// What has come although nobody waits for it any more.
    pub(super) fn rest(mut self) -> Vec<Held> {
        let mut come = Vec::new();
        while let Some(Some(message)) = self.incoming.next().now_or_never() {
            come.extend(self.take(Some(message)).ok().flatten());
        }
        come
    }

    /// Whether the request was made on a connection that is no more: nobody on a new one has heard of it.
    pub(super) fn is_lost(&self) -> bool {
        self.bus.connects() != self.connects
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
