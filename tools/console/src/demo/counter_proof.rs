//! Counter-proofs: a scenario on a separate suite that was started without one mechanism. It passes when the audit finds the
//! damage.

mod inbox;
mod outbox;

use super::{preflight::Need, scenarios::Scenario};

/// A mechanism that a suite can be started without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mechanism {
    /// Events are published straight after the commit
    Outbox,
    /// Every delivery is applied, repeated ones too
    Inbox,
}

impl Mechanism {
    pub(super) const fn scenario(self) -> &'static Scenario {
        match self {
            Mechanism::Outbox => &OUTBOX,
            Mechanism::Inbox => &INBOX,
        }
    }
}

const OUTBOX: Scenario = Scenario {
    number: 0,
    name: "without outbox",
    about: "without an outbox, events are lost while the broker is down",
    needs: &[Need::Faults, Need::Processes],
    violated: outbox::VIOLATED,
    play: |run| Box::pin(outbox::play(run)),
};

const INBOX: Scenario = Scenario {
    name: "without inbox",
    about: "without an inbox, an event that is delivered three times takes effect three times",
    violated: inbox::VIOLATED,
    play: |run| Box::pin(inbox::play(run)),
    ..OUTBOX
};
