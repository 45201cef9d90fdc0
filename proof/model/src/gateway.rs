//! The card processor, as far as the suite relies on it: a key has one outcome, and a void overrides a charge for ever.

use payment::domain::{Answer, Ask, DeclineCode, Reference};

/// The processor's ledger for the key of one payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    Fresh,
    Charged,
    Declined,
    Fenced,
    Refunded,
}

impl Key {
    /// Applies a request to the key, and returns the answer.
    pub fn ask(&mut self, ask: &Ask, good_card: bool) -> Answer {
        *self = match (ask, *self) {
            (Ask::Charge, Key::Fresh) if good_card => Key::Charged,
            (Ask::Charge, Key::Fresh) => Key::Declined,
            (Ask::Void, Key::Fresh) => Key::Fenced,
            (Ask::Void | Ask::Refund(_), Key::Charged) => Key::Refunded,
            (_, settled) => settled,
        };
        let charge = || Reference("ch_1".to_owned());
        match (ask, *self) {
            (_, Key::Refunded) => Answer::Refunded(charge()),
            (_, Key::Charged) => Answer::Captured(charge()),
            (Ask::Charge, _) => Answer::Declined(DeclineCode("declined".to_owned())),
            (_, _) => Answer::Fenced,
        }
    }
}
