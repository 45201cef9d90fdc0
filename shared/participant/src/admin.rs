//! The routes to administrate one participant; the HTTP shell asks for the admin token on all of them.

mod consumers;
mod dead_letters;
mod outbox;
mod relay;

use std::sync::Arc;

use messaging::Subscription;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::Participant;

/// What the administration works on.
pub(crate) struct Desk {
    participant: Participant,
    subscriptions: Vec<Subscription>,
}

pub(crate) type Shared = axum::extract::State<Arc<Desk>>;

pub(crate) fn routes(participant: Participant, subscriptions: Vec<Subscription>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(dead_letters::list_dead_letters))
        .routes(routes!(dead_letters::count_dead_letters))
        .routes(routes!(dead_letters::get_dead_letter, dead_letters::discard_dead_letter))
        .routes(routes!(dead_letters::replay_dead_letter))
        .routes(routes!(outbox::list_outbox))
        .routes(routes!(outbox::get_outbox_entry))
        .routes(routes!(outbox::requeue_outbox_entry))
        .routes(routes!(relay::get_relay))
        .routes(routes!(relay::pause_relay))
        .routes(routes!(relay::resume_relay))
        .routes(routes!(consumers::list_consumers))
        .routes(routes!(consumers::pause_consumer))
        .routes(routes!(consumers::resume_consumer))
        .with_state(Arc::new(Desk { participant, subscriptions }))
}
