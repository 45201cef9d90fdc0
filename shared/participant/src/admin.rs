//! The routes to administrate one participant; the HTTP shell asks for the admin token on all of them. What a replica keeps
//! for itself (its breakers, its faults) is asked of, or done in, every replica of the service.

#[cfg(feature = "faults")]
mod annotations;
mod breakers;
mod consumers;
mod dead_letter_replays;
mod dead_letters;
#[cfg(feature = "faults")]
mod faults;
mod outbox;
mod relay;

use std::sync::Arc;

use axum::http::HeaderMap;
use messaging::{Subscription, dead_letter::Replays};
use saga::Step;
use serde_json::Value;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{Participant, replicas::Question};

pub use dead_letters::Why;

/// What the administration works on.
pub(crate) struct Desk {
    participant: Participant,
    subscriptions: Vec<Subscription>,
    replays: Replays,
}

impl Desk {
    fn steps(&self) -> Vec<&'static Step> {
        steps_of(&self.subscriptions)
    }
}

pub(crate) type Shared = axum::extract::State<Arc<Desk>>;

pub(crate) fn routes(participant: Participant, subscriptions: Vec<Subscription>) -> OpenApiRouter {
    let router = OpenApiRouter::new()
        .routes(routes!(dead_letters::list_dead_letters))
        .routes(routes!(dead_letters::count_dead_letters))
        .routes(routes!(dead_letters::get_dead_letter, dead_letters::discard_dead_letter))
        .routes(routes!(dead_letter_replays::replay_dead_letter))
        .routes(routes!(dead_letter_replays::replay_dead_letters))
        .routes(routes!(dead_letter_replays::list_dead_letter_replays))
        .routes(routes!(dead_letter_replays::get_dead_letter_replay))
        .routes(routes!(outbox::list_outbox))
        .routes(routes!(outbox::get_outbox_entry, outbox::discard_outbox_entry))
        .routes(routes!(outbox::requeue_outbox_entry))
        .routes(routes!(outbox::requeue_outbox))
        .routes(routes!(relay::get_relay))
        .routes(routes!(relay::pause_relay))
        .routes(routes!(relay::resume_relay))
        .routes(routes!(consumers::list_consumers))
        .routes(routes!(consumers::pause_consumer))
        .routes(routes!(consumers::resume_consumer))
        .routes(routes!(breakers::list_breakers))
        .routes(routes!(breakers::reset_breaker));
    #[cfg(feature = "faults")]
    let router = match participant.faults.is_armable() {
        true => router.merge(faults::routes()).merge(annotations::routes()),
        false => router,
    };
    let replays = participant.replays(&subscriptions);
    router.with_state(Arc::new(Desk { participant, subscriptions, replays }))
}

/// What this replica answers another one.
pub(crate) async fn answer(
    participant: &Participant,
    subscriptions: &[Subscription],
    question: Question,
) -> serde_json::Result<Value> {
    match question {
        Question::ListBreakers => serde_json::to_value(breakers::own(participant, &steps_of(subscriptions))),
        Question::ResetBreaker { step } => {
            let steps: Vec<_> = steps_of(subscriptions).into_iter().filter(|known| known.name == step).collect();
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

fn steps_of(subscriptions: &[Subscription]) -> Vec<&'static Step> {
    subscriptions.iter().map(|subscription| subscription.step).collect()
}

/// Who acts: the token says that they may, `x-actor` who they are.
pub fn actor(headers: &HeaderMap) -> String {
    let named = headers.get("x-actor").and_then(|v| v.to_str().ok()).filter(|v| (1..=128).contains(&v.len()));
    named.unwrap_or("admin").to_owned()
}
