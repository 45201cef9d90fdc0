//! The fault points, the kinds of faults at each, and the outcome of a pass. The names are the same in code, JSON, logs, metrics
//! and tables.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An enum with a name for each variant, and conversions from and to the names.
macro_rules! named {
    ($of:literal: $(#[$about:meta])* $owner:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $owner {
            $($(#[$doc])* $variant,)*
        }

        impl $owner {
            pub const ALL: [$owner; [$($name),*].len()] = [$($owner::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $($owner::$variant => $name,)*
                }
            }
        }

        impl FromStr for $owner {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                by_name($of, &$owner::ALL, $owner::as_str, name)
            }
        }
    };
}

named!("fault point":
    /// Every point where a fault can be injected: at the edges, and in the windows between two commits.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "snake_case")]
    FaultPoint {
        HttpIn = "http_in",
        GatewayCall = "gateway_call",
        AfterChargeBeforeRecord = "after_charge_before_record",
        BusPublish = "bus_publish",
        BeforeInboxClaim = "before_inbox_claim",
        InStep = "in_step",
        BeforeCommit = "before_commit",
        AfterCommitBeforePublish = "after_commit_before_publish",
        AfterPublishBeforeMark = "after_publish_before_mark",
        AfterCommitBeforeAck = "after_commit_before_ack",
        BetweenTimeoutAndCompensation = "between_timeout_and_compensation",
        ParticipantCall = "participant_call",
        AfterCallBeforeTransition = "after_call_before_transition",
    }
);

named!("kind of fault":
    /// The effect of a fault.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "snake_case")]
    Kind {
        /// The operation fails.
        Error = "error",
        /// The operation takes longer.
        Latency = "latency",
        /// The operation blocks until the fault is disarmed or expires.
        Hang = "hang",
        /// The process is gone, as after kill -9.
        Crash = "crash",
        /// The message arrives more than once.
        Duplicate = "duplicate",
        /// The message does not arrive, without an error for the sender.
        Drop = "drop",
        /// The other system declines.
        Decline = "decline",
    }
);

named!("mechanism to do without":
    /// A mechanism that can be switched off, to show what happens without it.
    Guard {
        /// Events wait in the transaction's own database until the broker has them.
        Outbox = "outbox",
        /// A redelivered event is recognised.
        Inbox = "inbox",
    }
);

impl FaultPoint {
    /// A description of the moment.
    pub const fn about(self) -> &'static str {
        match self {
            FaultPoint::HttpIn => "A request to a business route has arrived and nothing has been done for it.",
            FaultPoint::GatewayCall => "Payment is about to call the card processor.",
            FaultPoint::AfterChargeBeforeRecord => "The card processor has answered and nothing is recorded.",
            FaultPoint::BusPublish => "The relay is about to publish one event.",
            FaultPoint::BeforeInboxClaim => "A consumer holds an event and has not begun its transaction.",
            FaultPoint::InStep => "The step is about to apply an event.",
            FaultPoint::BeforeCommit => "Everything is written and nothing is committed.",
            FaultPoint::AfterCommitBeforePublish => "The transaction is committed and the relay has not been notified.",
            FaultPoint::AfterPublishBeforeMark => {
                "The broker has acknowledged the event and the outbox still holds it as unpublished."
            }
            FaultPoint::AfterCommitBeforeAck => {
                "The transaction is committed and the broker has no acknowledgement of the delivery."
            }
            FaultPoint::BetweenTimeoutAndCompensation => {
                "The timeout of the saga is committed and its order is not cancelled yet."
            }
            FaultPoint::ParticipantCall => {
                "The coordinator has stored a transition and is about to command the next step."
            }
            FaultPoint::AfterCallBeforeTransition => {
                "A participant has answered a command and the coordinator has stored nothing."
            }
        }
    }

    /// The kinds of faults here: four at every point, the others only where they apply.
    pub const fn kinds(self) -> &'static [Kind] {
        use Kind::{Crash, Decline, Drop, Duplicate, Error, Hang, Latency};
        match self {
            FaultPoint::GatewayCall => &[Error, Latency, Hang, Crash, Duplicate, Drop, Decline],
            FaultPoint::BusPublish | FaultPoint::BeforeInboxClaim | FaultPoint::ParticipantCall => {
                &[Error, Latency, Hang, Crash, Duplicate, Drop]
            }
            FaultPoint::HttpIn
            | FaultPoint::AfterChargeBeforeRecord
            | FaultPoint::AfterCommitBeforeAck
            | FaultPoint::AfterCallBeforeTransition => &[Error, Latency, Hang, Crash, Drop],
            FaultPoint::InStep
            | FaultPoint::BeforeCommit
            | FaultPoint::AfterCommitBeforePublish
            | FaultPoint::AfterPublishBeforeMark
            | FaultPoint::BetweenTimeoutAndCompensation => &[Error, Latency, Hang, Crash],
        }
    }

    /// Whether a pass of this point knows the step that is being taken.
    pub const fn knows_step(self) -> bool {
        matches!(
            self,
            FaultPoint::BeforeInboxClaim
                | FaultPoint::InStep
                | FaultPoint::BeforeCommit
                | FaultPoint::AfterCommitBeforePublish
                | FaultPoint::AfterCommitBeforeAck
                | FaultPoint::ParticipantCall
                | FaultPoint::AfterCallBeforeTransition
        )
    }

    /// Whether this kind can happen here.
    pub fn can(self, kind: Kind) -> bool {
        self.kinds().contains(&kind)
    }
}

/// The outcome of a pass, for the caller to act on. Latency and hang are over by then and end in `Unharmed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the caller may have to carry out the fault"]
pub enum Pass {
    Unharmed,
    /// Do the operation, and repeat it this many times.
    Duplicate {
        copies: u8,
    },
    /// Drop the message.
    Drop,
    /// Act as if the other system declined.
    Decline,
}

/// The injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fault {fault_id} injected at {}", .point.as_str())]
pub struct Injected {
    pub point: FaultPoint,
    pub fault_id: u64,
}

/// An unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {of}; there are {known}")]
pub struct UnknownName {
    name: String,
    of: &'static str,
    known: String,
}

fn by_name<T: Copy>(of: &'static str, all: &[T], as_str: fn(T) -> &'static str, name: &str) -> Result<T, UnknownName> {
    all.iter().copied().find(|item| as_str(*item) == name).ok_or_else(|| {
        let known: Vec<&str> = all.iter().copied().map(as_str).collect();
        UnknownName { name: name.to_owned(), of, known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug};

    use serde::de::DeserializeOwned;

    use super::*;

    fn names_agree<T>(all: &[T], as_str: fn(T) -> &'static str)
    where
        T: Copy + PartialEq + Debug + FromStr<Err = UnknownName> + Serialize + DeserializeOwned,
    {
        for item in all.iter().copied() {
            assert_eq!(as_str(item).parse(), Ok(item));
            assert_eq!(serde_json::to_value(item).expect("JSON"), as_str(item));
            assert_eq!(serde_json::from_value::<T>(as_str(item).into()).expect("a name"), item);
        }
        assert_eq!(all.iter().map(|item| as_str(*item)).collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_name_is_the_same_in_code_and_json() {
        names_agree(&FaultPoint::ALL, FaultPoint::as_str);
        names_agree(&Kind::ALL, Kind::as_str);
        for guard in Guard::ALL {
            assert_eq!(guard.as_str().parse(), Ok(guard));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let refused = "breaker".parse::<Guard>().expect_err("no such mechanism");
        assert_eq!(refused.to_string(), r#""breaker" is no mechanism to do without; there are outbox, inbox"#);
        assert!("Http_In".parse::<FaultPoint>().is_err());
        assert!("".parse::<Kind>().is_err());
    }

    #[test]
    fn an_injected_error_says_which_fault_it_was_and_where() {
        let injected = Injected { point: FaultPoint::BeforeCommit, fault_id: 3 };
        assert_eq!(injected.to_string(), "fault 3 injected at before_commit");
    }
}
