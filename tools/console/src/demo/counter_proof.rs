//! Counter-proofs: what a mechanism is for shows when it is missing. Each is a scenario that is played on a suite of its own,
//! which was started without the mechanism, and passes when the audit finds the damage.

mod inbox;
mod outbox;

use super::{preflight::Need, scenarios::Scenario};

/// What can be done without, to show what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mechanism {
    /// Events are published straight after the commit
    Outbox,
    /// Every delivery is applied, however often it comes
    Inbox,
}

impl Mechanism {
    pub(super) const fn scenario(self) -> &'static Scenario {
        match self {
            Mechanism::Outbox => &Scenario {
                number: 0,
                name: "without outbox",
                about: "without an outbox, events are lost while the broker is away",
                needs: &[Need::Faults, Need::Processes],
                violated: outbox::VIOLATED,
                play: |stage| Box::pin(outbox::play(stage)),
            },
            Mechanism::Inbox => &Scenario {
                number: 0,
                name: "without inbox",
                about: "without an inbox, an event that is delivered three times has effects three times",
                needs: &[Need::Faults, Need::Processes],
                violated: inbox::VIOLATED,
                play: |stage| Box::pin(inbox::play(stage)),
            },
        }
    }
}
