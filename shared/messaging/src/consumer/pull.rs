//! A consumer's pull requests: one at a time, for as many messages as there is room for. So every message that the broker counts
//! as delivered is known here, and can be kept in progress. The client's own message stream buffers hundreds of them out of
//! reach.
//!
//! A request ends by this program's clock, too: nats-server before 2.9.16 does not say that it has ended when an event comes just
//! then. The broker's clock started later, so for a moment it may still answer. What it delivers is read, also while no request
//! is open; what it says of a request ends no other, because each has a reply subject of its own.

use std::{future::pending, time::Duration};

use async_nats::{StatusCode, Subscriber, jetstream};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::unacked::Unacked;
use crate::{Bus, error::chain};

/// The longest interval of the broker's heartbeats. After twice as long without any it is considered unavailable.
const HEARTBEAT: Duration = Duration::from_secs(2);

pub(super) struct Pull {
    bus: Bus,
    subject: String,
    inbox: String,
    requests: u64,
    /// Of the last request, until it ends by the clock.
    reply: String,
    incoming: Subscriber,
    connects: u64,
    heartbeat: Duration,
    /// How many messages of the open request have not arrived yet.
    outstanding: usize,
    /// Why the request failed, after its last messages are returned.
    failed: Option<String>,
    /// Without any message by then the broker is considered unavailable.
    heartbeat_due: Instant,
    /// When the open request is over, unless the broker has said nothing since it was made.
    ends: Instant,
    answered: bool,
}

impl Pull {
    pub(super) async fn begin(bus: &Bus, stream: &str, consumer: &str) -> Result<Self, String> {
        let connects = bus.connects();
        let inbox = bus.client.new_inbox();
        let incoming = bus.client.subscribe(format!("{inbox}.*")).await.map_err(|e| chain(&e))?;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        Ok(Pull {
            bus: bus.clone(),
            subject,
            inbox,
            requests: 0,
            reply: String::new(),
            incoming,
            connects,
            heartbeat: HEARTBEAT,
            outstanding: 0,
            failed: None,
            heartbeat_due: Instant::now(),
            ends: Instant::now(),
            answered: false,
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
            "idle_heartbeat": nanoseconds(self.heartbeat.min(expires / 3)),
        });
        self.requests += 1;
        self.reply = format!("{}.{}", self.inbox, self.requests);
        let (subject, reply) = (self.subject.clone(), self.reply.clone());
        let sent = self.bus.client.publish_with_reply(subject, reply, request.to_string().into()).await;
        sent.map_err(|e| chain(&e))?;
        self.outstanding = messages;
        self.heartbeat_due = Instant::now() + 2 * self.heartbeat;
        (self.ends, self.answered) = (Instant::now() + expires, false);
        Ok(())
    }

    /// The messages that have arrived, as soon as there are any; none when the request has ended and another one may be made.
    pub(super) async fn next(&mut self) -> Result<Vec<Unacked>, String> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            let was_open = self.outstanding > 0;
            let Some(mut next) = self.incoming_or_end().await? else {
                self.outstanding = 0;
                self.reply.clear();
                return Ok(Vec::new());
            };
            self.answered = true;
            self.heartbeat_due = Instant::now() + 2 * self.heartbeat;
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
                match self.incoming.next().now_or_never().flatten() {
                    Some(another) => next = another,
                    None => break,
                }
            }
            if (was_open && self.outstanding == 0) || !received.is_empty() {
                return Ok(received);
            }
        }
    }

    /// The next message or status; `None` when the open request is over by the clock. Without a request there is no limit.
    async fn incoming_or_end(&mut self) -> Result<Option<async_nats::Message>, String> {
        let over = self.answered && self.ends <= self.heartbeat_due;
        let limit = if over { self.ends } else { self.heartbeat_due };
        let next = match self.outstanding {
            0 => Ok(self.incoming.next().await),
            _ => timeout_at(limit, self.incoming.next()).await,
        };
        match next {
            Ok(Some(next)) => Ok(Some(next)),
            Ok(None) if self.outstanding == 0 => pending().await,
            Ok(None) => Err("the connection is closed".to_owned()),
            Err(_) if over => Ok(None),
            Err(_) => Err("the broker does not answer".to_owned()),
        }
    }

    /// Handles a message, or a status of the request.
    fn take(&mut self, message: async_nats::Message) -> Result<Option<Unacked>, String> {
        match message.status.unwrap_or(StatusCode::OK) {
            StatusCode::OK => {
                self.outstanding = self.outstanding.saturating_sub(1);
                let message = jetstream::Message { message, context: self.bus.jetstream.clone() };
                Ok(Some(Unacked::new(message, self.connects)))
            }
            StatusCode::IDLE_HEARTBEAT => Ok(None),
            _ if message.subject.as_str() != self.reply => Ok(None),
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
            received.extend(self.take(message).ok().flatten());
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

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpStream,
    };

    use async_nats::Client;
    use bytes::Bytes;
    use saga::Service;
    use testkit::Nats;

    use super::*;

    const ROOM: usize = 10;

    /// A broker whose JetStream is played by the test, so that it can leave out what it usually says.
    struct Broker {
        nats: Nats,
        client: Client,
        asked: Subscriber,
    }

    impl Broker {
        async fn start(heartbeat: Duration) -> (Self, Pull) {
            let nats = Nats::start().await.unwrap();
            let client = async_nats::connect(nats.url()).await.unwrap();
            let asked = client.subscribe("$JS.API.CONSUMER.MSG.NEXT.HOUSE.nobody").await.unwrap();
            let mut pull = Pull::begin(&Bus::new(client.clone(), Service("house")), "HOUSE", "nobody").await.unwrap();
            pull.heartbeat = heartbeat;
            (Broker { nats, client, asked }, pull)
        }

        async fn reply_of_next_request(&mut self) -> String {
            self.asked.next().await.unwrap().reply.unwrap().into_string()
        }

        async fn deliver_to(&self, reply: &str) {
            self.client.publish(reply.to_owned(), Bytes::from_static(b"an event")).await.unwrap();
        }

        /// Sends a status, which the client library cannot.
        fn say(&self, to: &str, status: &str) {
            let mut connection = TcpStream::connect(("127.0.0.1", self.nats.port())).unwrap();
            let header = format!("NATS/1.0 {status}\r\n\r\n");
            let length = header.len();
            let connect = r#"CONNECT {"verbose":false,"headers":true}"#;
            write!(connection, "{connect}\r\nHPUB {to} {length} {length}\r\n{header}\r\nPING\r\n").unwrap();
            assert!(BufReader::new(connection).lines().any(|line| line.unwrap() == "PONG"), "the status was not taken");
        }
    }

    #[tokio::test]
    async fn a_request_ends_by_the_clock_and_what_comes_late_is_read_and_ends_no_other() {
        let (mut broker, mut pull) = Broker::start(Duration::from_secs(60)).await;
        pull.request(ROOM, Duration::from_millis(10)).await.unwrap();
        let first = broker.reply_of_next_request().await;
        broker.say(&first, "100 Idle Heartbeat");
        assert!(pull.next().await.unwrap().is_empty());
        assert!(pull.is_idle());
        broker.deliver_to(&first).await;
        broker.say(&first, "409 Leadership Change");
        assert_eq!(pull.next().await.unwrap().len(), 1);

        pull.request(ROOM, Duration::from_secs(60)).await.unwrap();
        let second = broker.reply_of_next_request().await;
        broker.say(&first, "408 Request Timeout");
        broker.deliver_to(&second).await;
        assert_eq!(pull.next().await.unwrap().len(), 1);
        assert!(!pull.is_idle());
        broker.say(&second, "408 Request Timeout");
        assert!(pull.next().await.unwrap().is_empty());
        assert!(pull.is_idle());
    }

    #[tokio::test]
    async fn a_broker_that_says_nothing_is_unavailable() {
        let (_broker, mut pull) = Broker::start(Duration::from_millis(20)).await;
        pull.request(ROOM, Duration::from_millis(10)).await.unwrap();
        assert_eq!(pull.next().await.unwrap_err(), "the broker does not answer");
    }
}
