//! Alertmanager's webhook, and the latest alerts, each with its latest status. Alertmanager repeats notifications, so an alert is
//! identified by its labels and its start time.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{extract::State, http::StatusCode};
use bootstrap::{Json, Problem};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{board, metrics::AuditMetrics};

/// How many alerts are kept.
const MAX_ALERTS: usize = 200;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct AlertBook(Arc<Mutex<VecDeque<Alert>>>);

/// Whether an alert's condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Firing,
    Resolved,
}

/// An alert with its latest status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) starts_at: OffsetDateTime,
    /// `null` while it fires.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(super) ends_at: Option<OffsetDateTime>,
    /// When this status was first received.
    #[serde(with = "time::serde::rfc3339")]
    pub(super) received_at: OffsetDateTime,
    generator_url: String,
    fingerprint: String,
}

/// The used fields of version 4 of Alertmanager's webhook.
#[derive(Debug, Deserialize, ToSchema)]
struct Notification {
    #[schema(example = "4")]
    version: String,
    alerts: Vec<Notified>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Notified {
    status: Status,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(with = "time::serde::rfc3339")]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    ends_at: OffsetDateTime,
    #[serde(default, rename = "generatorURL")]
    generator_url: String,
    fingerprint: String,
}

/// The alerts, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Alerts {
    items: Vec<Alert>,
}

#[derive(Clone)]
struct Receiver {
    book: AlertBook,
    metrics: AuditMetrics,
}

pub(super) fn routes(book: AlertBook, metrics: AuditMetrics) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(list, receive)).with_state(Receiver { book, metrics })
}

/// The latest alerts, newest first, whether they still fire or not.
#[utoipa::path(
    get,
    path = "/alerts",
    tag = "alerts",
    operation_id = "list_alerts",
    responses((status = 200, description = "The latest alerts", body = Alerts))
)]
async fn list(State(receiver): State<Receiver>) -> Json<Alerts> {
    Json(Alerts { items: receiver.book.latest() })
}

/// Takes a notification of Alertmanager's webhook.
#[utoipa::path(
    post,
    path = "/alerts",
    tag = "alerts",
    operation_id = "receive_alerts",
    request_body = Notification,
    responses(
        (status = 204, description = "Taken"),
        (status = 422, description = "Not a notification of version 4", body = Problem,
            content_type = "application/problem+json"),
    )
)]
async fn receive(
    State(receiver): State<Receiver>,
    Json(notification): Json<Notification>,
) -> Result<StatusCode, Problem> {
    if notification.version != "4" {
        let version = notification.version;
        let detail = format!("This is version {version} of the webhook; only version 4 is supported.");
        return Err(Problem::invalid("/version", detail));
    }
    let now = board::now();
    for notified in notification.alerts {
        let (name, status) = (notified.labels.get("alertname").cloned().unwrap_or_default(), notified.status);
        if receiver.book.note(notified, now) {
            receiver.metrics.received(status);
            tracing::info!(alert = name, status = status.as_str(), "alert received");
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

impl Status {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Status::Firing => "firing",
            Status::Resolved => "resolved",
        }
    }
}

impl Alert {
    fn new(notified: Notified, received_at: OffsetDateTime) -> Self {
        let Notified { status, labels, annotations, starts_at, ends_at, generator_url, fingerprint } = notified;
        Alert {
            name: labels.get("alertname").cloned().unwrap_or_default(),
            ends_at: (status == Status::Resolved).then_some(ends_at),
            status,
            labels,
            annotations,
            starts_at,
            received_at,
            generator_url,
            fingerprint,
        }
    }
}

impl AlertBook {
    pub(super) fn latest(&self) -> Vec<Alert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Stores the notification; `false` if it is a repetition.
    fn note(&self, notified: Notified, now: OffsetDateTime) -> bool {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |alert: &Alert| alert.fingerprint == notified.fingerprint && alert.starts_at == notified.starts_at;
        if let Some(at) = book.iter().position(same) {
            let known = &mut book[at];
            // A late repetition must not let a resolved alert fire again.
            if known.status == notified.status || known.status == Status::Resolved {
                return false;
            }
            book.remove(at);
        }
        book.push_front(Alert::new(notified, now));
        book.truncate(MAX_ALERTS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notified(name: &str, status: Status, starts_at: i64) -> Notified {
        let at = |second: i64| OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second);
        Notified {
            status,
            labels: BTreeMap::from([("alertname".to_owned(), name.to_owned())]),
            annotations: BTreeMap::new(),
            starts_at: at(starts_at),
            ends_at: at(starts_at + 60),
            generator_url: String::new(),
            fingerprint: name.to_owned(),
        }
    }

    fn statuses(book: &AlertBook) -> Vec<(String, Status)> {
        book.latest().into_iter().map(|alert| (alert.name, alert.status)).collect()
    }

    #[test]
    fn an_alert_is_listed_once_with_its_latest_status() {
        let (book, now) = (AlertBook::default(), OffsetDateTime::UNIX_EPOCH);
        assert!(book.note(notified("A", Status::Firing, 1), now));
        assert!(book.note(notified("B", Status::Firing, 1), now));
        assert!(!book.note(notified("A", Status::Firing, 1), now), "a repetition");
        assert_eq!(statuses(&book), [("B".to_owned(), Status::Firing), ("A".to_owned(), Status::Firing)]);
        assert_eq!(book.latest()[0].ends_at, None);
        assert!(book.note(notified("A", Status::Resolved, 1), now));
        assert!(!book.note(notified("A", Status::Firing, 1), now), "it is resolved");
        assert_eq!(statuses(&book), [("A".to_owned(), Status::Resolved), ("B".to_owned(), Status::Firing)]);
        assert!(book.latest()[0].ends_at.is_some());
        assert!(book.note(notified("A", Status::Firing, 90), now), "it fires again");
        assert_eq!(book.latest().len(), 3);
    }

    #[test]
    fn only_the_latest_alerts_are_kept() {
        let book = AlertBook::default();
        for n in 0..500 {
            book.note(notified("A", Status::Firing, n), OffsetDateTime::UNIX_EPOCH);
        }
        let latest = book.latest();
        assert_eq!(latest.len(), MAX_ALERTS);
        assert_eq!(latest[0].starts_at.unix_timestamp(), 499);
    }
}
