//! The administration routes of a participant; the HTTP shell requires the admin token for all of them. State that each replica
//! has in memory (breakers, faults) is read from, or changed in, every replica of the service.

#[cfg(feature = "faults")]
mod annotations;
mod breakers;
mod bulk;
mod consumers;
mod dead_letter_replays;
mod dead_letters;
#[cfg(feature = "faults")]
mod faults;
mod housekeeping;
mod outbox;
mod outbox_bulk;
mod record;
mod relay;
mod timeouts;
mod webhook;

use std::sync::Arc;

use axum::http::HeaderMap;
use bootstrap::Problem;
use messaging::{Subscription, dead_letter::Replays};
use saga::{Step, Trigger};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::record::record;
use crate::{Participant, replicas::Question};

/// The state of the routes.
pub(crate) struct AdminState {
    participant: Arc<Participant>,
    subscriptions: Vec<Subscription>,
    replays: Replays,
}

impl AdminState {
    /// The steps that have breakers in this service.
    fn steps(&self) -> Vec<&'static Step> {
        steps_of(&self.participant, &self.subscriptions)
    }
}

pub(crate) type Shared = axum::extract::State<Arc<AdminState>>;

pub(crate) fn routes(participant: Arc<Participant>, subscriptions: Vec<Subscription>) -> OpenApiRouter {
    let router = OpenApiRouter::new()
        .routes(routes!(dead_letters::list_dead_letters))
        .routes(routes!(dead_letters::count_dead_letters))
        .routes(routes!(dead_letters::get_dead_letter, dead_letters::discard_dead_letter))
        .routes(routes!(dead_letters::discard_dead_letters))
        .routes(routes!(dead_letter_replays::replay_dead_letter))
        .routes(routes!(dead_letter_replays::replay_dead_letters))
        .routes(routes!(dead_letter_replays::list_dead_letter_replays))
        .routes(routes!(dead_letter_replays::get_dead_letter_replay))
        .routes(routes!(outbox::list_outbox))
        .routes(routes!(outbox::get_outbox_entry, outbox::discard_outbox_entry))
        .routes(routes!(outbox::requeue_outbox_entry))
        .routes(routes!(outbox_bulk::requeue_outbox))
        .routes(routes!(outbox_bulk::discard_outbox))
        .routes(routes!(relay::get_relay))
        .routes(routes!(relay::pause_relay))
        .routes(routes!(relay::resume_relay))
        .routes(routes!(consumers::list_consumers))
        .routes(routes!(consumers::pause_consumer))
        .routes(routes!(consumers::resume_consumer))
        .routes(routes!(breakers::list_breakers))
        .routes(routes!(breakers::reset_breaker))
        .routes(routes!(timeouts::check_timeouts))
        .routes(routes!(housekeeping::run_housekeeping));
    #[cfg(feature = "faults")]
    let router = match participant.faults.is_armable() {
        true => router.merge(faults::routes()).merge(annotations::routes()),
        false => router,
    };
    let router = if participant.webhook.is_some() { router.merge(webhook::routes()) } else { router };
    let replays = participant.replays(&subscriptions);
    router.with_state(Arc::new(AdminState { participant, subscriptions, replays }))
}

/// This replica's answer to a question of another one.
pub(crate) async fn answer(
    participant: &Participant,
    subscriptions: &[Subscription],
    question: Question,
) -> serde_json::Result<Value> {
    match question {
        Question::ListBreakers => {
            serde_json::to_value(breakers::own(participant, &steps_of(participant, subscriptions)))
        }
        Question::ResetBreaker { step } => {
            let steps: Vec<_> =
                steps_of(participant, subscriptions).into_iter().filter(|known| known.name == step).collect();
            serde_json::to_value(breakers::reset(participant, &steps))
        }
        Question::CloseIntake { step } => serde_json::to_value(consumers::close_intake(subscriptions, &step).await),
        #[cfg(feature = "faults")]
        Question::ListFaults => serde_json::to_value(participant.faults.armed()),
        #[cfg(feature = "faults")]
        Question::HoldFault(armed) => serde_json::to_value(participant.faults.hold(&armed, armed.lasts())),
        #[cfg(feature = "faults")]
        Question::DisarmFaults(id) => serde_json::to_value(faults::disarm(participant, id)),
    }
}

fn steps_of(participant: &Participant, subscriptions: &[Subscription]) -> Vec<&'static Step> {
    let own = participant.service;
    let commanded = participant.coordinated().filter(|s| s.on == Trigger::Command && s.service != Some(own));
    subscriptions.iter().map(|subscription| subscription.step).chain(commanded).collect()
}

/// The acting operator: the token authorises, the header `x-actor` names.
pub fn actor(headers: &HeaderMap) -> String {
    let named = headers.get("x-actor").and_then(|v| v.to_str().ok()).filter(|v| (1..=128).contains(&v.len()));
    named.unwrap_or("admin").to_owned()
}

/// The reason for an operator's action.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Why {
    pub reason: Option<String>,
}

/// An action on many entries: which ones, and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, bound = "F: Deserialize<'de>")]
pub struct Bulk<F> {
    #[serde(deserialize_with = "bootstrap::http::object")]
    pub filter: F,
    /// How many at most, the oldest first; 100 by default.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only report the selected entries, without a change. True by default.
    #[serde(default = "yes")]
    pub dry_run: bool,
    /// Recorded in each entry's history, with the name in `x-actor`.
    #[schema(min_length = 1, max_length = 500)]
    pub reason: String,
}

fn yes() -> bool {
    true
}

impl<F> Bulk<F> {
    /// The maximal number of entries.
    ///
    /// # Errors
    /// 422 for an invalid number or reason.
    pub fn limit(&self) -> Result<i64, Problem> {
        let limit = self.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(Problem::invalid("/limit", "A number from 1 to 1000."));
        }
        expect_reason(&self.reason).map(|()| limit)
    }
}

/// Refuses an empty or overlong reason.
pub fn expect_reason(reason: &str) -> Result<(), Problem> {
    if (1..=500).contains(&reason.chars().count()) {
        return Ok(());
    }
    Err(Problem::invalid("/reason", "A reason has 1 to 500 characters."))
}
