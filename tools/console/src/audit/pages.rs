//! Reads a stream page by page: the headers of all messages that it holds when it is opened, in one ordered pass.

use std::time::Duration;

use async_nats::jetstream::{self, consumer::pull, stream};
use futures_util::StreamExt;
use uuid::Uuid;

use super::{
    AuditError,
    broker::{self, unreadable},
};

/// How many sequences of a stream make one page.
pub(super) const PAGE: i64 = 5_000;

/// One message of a stream, without its body.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) sequence: u64,
    pub(super) subject: String,
    pub(super) event_id: Option<Uuid>,
}

/// The messages of one page, in order. `first_sequence` is the stream's after the page was read: lower ones have aged out.
pub(super) struct Page {
    pub(super) number: i64,
    pub(super) epoch: i64,
    pub(super) first_sequence: u64,
    pub(super) messages: Vec<Stored>,
}

impl Stored {
    fn page(&self) -> i64 {
        i64::try_from(self.sequence).unwrap_or(i64::MAX) / PAGE
    }
}

impl Page {
    #[cfg(test)]
    pub(super) fn of(epoch: i64, messages: Vec<Stored>) -> Self {
        let first_sequence = messages.first().map_or(1, |stored| stored.sequence);
        Page { number: 0, epoch, first_sequence, messages }
    }

    pub(super) fn has(&self, event_id: Uuid) -> bool {
        self.messages.iter().any(|stored| stored.event_id == Some(event_id))
    }
}

/// The ids of all events that a stream has now.
pub(crate) async fn event_ids(broker: &jetstream::Context, name: &'static str) -> Result<Vec<Uuid>, AuditError> {
    let mut pages = Pages::open(broker, name).await?;
    let mut ids = Vec::new();
    while let Some(page) = pages.next().await? {
        ids.extend(page.messages.into_iter().filter_map(|stored| stored.event_id));
    }
    Ok(ids)
}

pub(super) struct Pages {
    pub(super) stream: stream::Stream,
    pub(super) epoch: i64,
    first_sequence: u64,
    /// `None` at the end.
    incoming: Option<pull::Ordered>,
    last_sequence: u64,
    /// The first of the next page.
    ahead: Option<Stored>,
}

impl Pages {
    pub(super) async fn open(broker: &jetstream::Context, name: &'static str) -> Result<Self, AuditError> {
        let stream = broker::stream(broker, name).await?;
        let state = &stream.cached_info().state;
        let (first_sequence, last_sequence, messages) = (state.first_sequence, state.last_sequence, state.messages);
        let epoch = broker::epoch(stream.cached_info());
        let mut pages = Pages { stream, epoch, first_sequence, incoming: None, last_sequence, ahead: None };
        if messages > 0 {
            pages.incoming = Some(pages.read_from_the_first().await?);
            pages.ahead = pages.read().await?;
        }
        Ok(pages)
    }

    fn subject(&self) -> String {
        format!("the messages of stream {}", self.stream.cached_info().config.name)
    }

    async fn read_from_the_first(&self) -> Result<pull::Ordered, AuditError> {
        // The auditor may create only consumers that are named in the request's subject.
        let name = Some(format!("auditor-{}", Uuid::now_v7()));
        let config = pull::OrderedConfig { name, headers_only: true, ..Default::default() };
        let consumer = self.stream.create_consumer(config).await.map_err(unreadable(self.subject()))?;
        consumer.messages().await.map_err(unreadable(self.subject()))
    }

    async fn read(&mut self) -> Result<Option<Stored>, AuditError> {
        const NEXT_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
        let subject = self.subject();
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        let next =
            tokio::time::timeout(NEXT_MESSAGE_TIMEOUT, incoming.next()).await.map_err(unreadable(subject.clone()))?;
        let Some(message) = next.transpose().map_err(unreadable(subject.clone()))? else {
            self.incoming = None;
            return Ok(None);
        };
        let info = message.info().map_err(|source| AuditError::Broker { subject, source })?;
        let event_id = message.headers.as_ref().and_then(|headers| headers.get("ce-id"));
        let stored = Stored {
            sequence: info.stream_sequence,
            subject: message.subject.to_string(),
            event_id: event_id.and_then(|id| id.as_str().parse().ok()),
        };
        if info.stream_sequence >= self.last_sequence || info.pending == 0 {
            self.incoming = None;
        }
        Ok(Some(stored))
    }

    pub(super) async fn next(&mut self) -> Result<Option<Page>, AuditError> {
        let Some(first) = self.ahead.take() else { return Ok(None) };
        let number = first.page();
        let mut messages = vec![first];
        while let Some(stored) = self.read().await? {
            if stored.page() != number {
                self.ahead = Some(stored);
                break;
            }
            messages.push(stored);
        }
        let subject = self.subject();
        let info = self.stream.info().await.map_err(unreadable(subject))?;
        if broker::epoch(info) != self.epoch {
            let name = info.config.name.clone();
            return Err(unreadable(format!("stream {name}"))("it was recreated while it was read"));
        }
        self.first_sequence = info.state.first_sequence;
        Ok(Some(Page { messages, ..self.empty(number) }))
    }

    pub(super) fn empty(&self, number: i64) -> Page {
        Page { number, epoch: self.epoch, first_sequence: self.first_sequence, messages: Vec::new() }
    }
}
