//! Where something can go wrong on purpose, what can go wrong there, and what a pass of such a point ends in. The names
//! are the same in code, JSON, logs, metrics and tables.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Every place where a fault can be injected: the edges, and the windows in which systems of this kind break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FaultPoint {
    HttpIn,
    GatewayCall,
    AfterChargeBeforeRecord,
    BusPublish,
    BeforeInboxClaim,
    InStep,
    BeforeCommit,
    AfterCommitBeforePublish,
    AfterPublishBeforeMark,
    AfterCommitBeforeAck,
    BetweenTimeoutAndCompensation,
}

impl FaultPoint {
    pub const ALL: [FaultPoint; 11] = [
        FaultPoint::HttpIn,
        FaultPoint::GatewayCall,
        FaultPoint::AfterChargeBeforeRecord,
        FaultPoint::BusPublish,
        FaultPoint::BeforeInboxClaim,
        FaultPoint::InStep,
        FaultPoint::BeforeCommit,
        FaultPoint::AfterCommitBeforePublish,
        FaultPoint::AfterPublishBeforeMark,
        FaultPoint::AfterCommitBeforeAck,
        FaultPoint::BetweenTimeoutAndCompensation,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            FaultPoint::HttpIn => "http_in",
            FaultPoint::GatewayCall => "gateway_call",
            FaultPoint::AfterChargeBeforeRecord => "after_charge_before_record",
            FaultPoint::BusPublish => "bus_publish",
            FaultPoint::BeforeInboxClaim => "before_inbox_claim",
            FaultPoint::InStep => "in_step",
            FaultPoint::BeforeCommit => "before_commit",
            FaultPoint::AfterCommitBeforePublish => "after_commit_before_publish",
            FaultPoint::AfterPublishBeforeMark => "after_publish_before_mark",
            FaultPoint::AfterCommitBeforeAck => "after_commit_before_ack",
            FaultPoint::BetweenTimeoutAndCompensation => "between_timeout_and_compensation",
        }
    }

    /// Which moment it is, in one sentence.
    pub const fn about(self) -> &'static str {
        match self {
            FaultPoint::HttpIn => "A request to a business route has arrived and nothing has been done for it.",
            FaultPoint::GatewayCall => "Payment is about to call the card processor.",
            FaultPoint::AfterChargeBeforeRecord => "The card processor has answered and nothing is recorded.",
            FaultPoint::BusPublish => "The relay is about to publish one event.",
            FaultPoint::BeforeInboxClaim => "A consumer holds an event and has not begun its transaction.",
            FaultPoint::InStep => "The step is about to apply an event.",
            FaultPoint::BeforeCommit => "Everything is written and nothing is committed.",
            FaultPoint::AfterCommitBeforePublish => "The transaction is committed and the relay has not been told.",
            FaultPoint::AfterPublishBeforeMark => {
                "The broker has acknowledged the event and the outbox still holds it as unpublished."
            }
            FaultPoint::AfterCommitBeforeAck => {
                "The transaction is committed and the broker has no acknowledgement of the delivery."
            }
            FaultPoint::BetweenTimeoutAndCompensation => {
                "The timeout of the saga is committed and nobody has cancelled its order."
            }
        }
    }

    /// What can happen here: four kinds at every point, the others only where they mean something.
    pub const fn kinds(self) -> &'static [Kind] {
        use Kind::{Crash, Decline, Drop, Duplicate, Error, Hang, Latency};
        match self {
            FaultPoint::GatewayCall => &[Error, Latency, Hang, Crash, Duplicate, Drop, Decline],
            FaultPoint::BusPublish | FaultPoint::BeforeInboxClaim => &[Error, Latency, Hang, Crash, Duplicate, Drop],
            FaultPoint::HttpIn | FaultPoint::AfterChargeBeforeRecord | FaultPoint::AfterCommitBeforeAck => {
                &[Error, Latency, Hang, Crash, Drop]
            }
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
        )
    }

    /// Whether this kind can happen here.
    pub fn can(self, kind: Kind) -> bool {
        self.kinds().contains(&kind)
    }
}

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The operation fails.
    Error,
    /// The operation takes longer.
    Latency,
    /// The operation does not go on until the fault is disarmed or expires.
    Hang,
    /// The process is gone, as after kill -9.
    Crash,
    /// The message arrives more than once.
    Duplicate,
    /// The message does not arrive, and the sender is not told.
    Drop,
    /// The other side says no.
    Decline,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Error, Kind::Latency, Kind::Hang, Kind::Crash, Kind::Duplicate, Kind::Drop, Kind::Decline];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Error => "error",
            Kind::Latency => "latency",
            Kind::Hang => "hang",
            Kind::Crash => "crash",
            Kind::Duplicate => "duplicate",
            Kind::Drop => "drop",
            Kind::Decline => "decline",
        }
    }
}

/// A mechanism that can be switched off, to show what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// Events wait in the transaction's own database until the broker has them.
    Outbox,
    /// An event that comes again is recognised.
    Inbox,
}

impl Guard {
    pub const ALL: [Guard; 2] = [Guard::Outbox, Guard::Inbox];

    pub const fn as_str(self) -> &'static str {
        match self {
            Guard::Outbox => "outbox",
            Guard::Inbox => "inbox",
        }
    }
}

/// What is left to the caller after a pass. Latency and hang are over by then and leave it unharmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a fault may have to be acted out by the caller"]
pub enum Pass {
    Unharmed,
    /// Do it, and then this many times more.
    Duplicate {
        copies: u8,
    },
    /// Let it be lost.
    Drop,
    /// Answer no in the other side's name.
    Decline,
}

/// The injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fault {fault_id} injected at {}", .point.as_str())]
pub struct Injected {
    pub point: FaultPoint,
    pub fault_id: u64,
}

/// A name that is none of the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {of}; there are {known}")]
pub struct UnknownName {
    name: String,
    of: &'static str,
    known: String,
}

impl FromStr for FaultPoint {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("fault point", &FaultPoint::ALL, FaultPoint::as_str, name)
    }
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("kind of fault", &Kind::ALL, Kind::as_str, name)
    }
}

impl FromStr for Guard {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("mechanism to do without", &Guard::ALL, Guard::as_str, name)
    }
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
