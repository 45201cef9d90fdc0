//! The description of a fault to arm, and its validation.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{FaultPoint, Kind, Subject};

/// How long a fault lasts unless its spec says otherwise, in seconds.
const DEFAULT_EXPIRY: u32 = 60;
/// The longest duration of a fault, in seconds.
const MAX_EXPIRY: u32 = 3600;

/// The specification of a fault. At most one of `probability`, `every` and `first`; without them every pass is hit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    pub point: FaultPoint,
    pub kind: Kind,
    /// The added latency: required for the kind `latency`, and not allowed for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// The number of copies besides the original: only for the kind `duplicate`. 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u8>,
    /// The probability of a hit for each pass, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Each pass whose number is a multiple of this is hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// This many passes are hit, then the fault is done and gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// This many passes are skipped before any of the above counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<u32>,
    /// The passes that the fault concerns. Others are neither hit nor counted.
    #[serde(default, skip_serializing_if = "Scope::is_everything")]
    pub scope: Scope,
    /// The seed for `probability`: the same seed and the same passes give the same hits. Random if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How long the fault lasts at most, 1 to 3600. 60 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u32>,
}

/// The passes that a fault concerns: those that match all given values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_id: Option<Uuid>,
    /// One of the order's SKUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    /// The name of a step of the saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Why a fault is not armed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    #[error("faults are not enabled in this process")]
    NotArmable,
    #[error("{} cannot happen at {}, only {} can", .kind.as_str(), .point.as_str(), names(.point.kinds()))]
    Impossible { point: FaultPoint, kind: Kind },
    #[error("a scope cannot name a step at {}, where none is known", .0.as_str())]
    NoStep(FaultPoint),
    #[error("at most one of probability, every and first may be given")]
    TwoTriggers,
    #[error("probability must be 0 to 1, not {0}")]
    Probability(f64),
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("the kind latency needs latency_ms")]
    NoLatency,
    #[error("{field} is only for the kind {}", .kind.as_str())]
    OnlyFor { field: &'static str, kind: Kind },
    #[error("expires_in_seconds must be 1 to {MAX_EXPIRY}, not {0}")]
    Expiry(u32),
    #[error("latency_ms must not be longer than the {0} s after which the fault expires")]
    LatencyOutlastsFault(u32),
}

impl FaultSpec {
    /// Hits every pass of the point, for the default duration.
    pub fn new(point: FaultPoint, kind: Kind) -> Self {
        FaultSpec {
            point,
            kind,
            latency_ms: None,
            copies: None,
            probability: None,
            every: None,
            first: None,
            skip: None,
            scope: Scope::default(),
            seed: None,
            expires_in_seconds: None,
        }
    }

    pub fn scope(self, scope: Scope) -> Self {
        FaultSpec { scope, ..self }
    }

    /// How long the fault lasts at most, in seconds.
    pub(crate) fn lasts(&self) -> u32 {
        self.expires_in_seconds.unwrap_or(DEFAULT_EXPIRY)
    }

    /// Whether a fault like this can be armed.
    pub fn validate(&self) -> Result<(), Refused> {
        if !self.point.can(self.kind) {
            return Err(Refused::Impossible { point: self.point, kind: self.kind });
        }
        if self.scope.step.is_some() && !self.point.knows_step() {
            return Err(Refused::NoStep(self.point));
        }
        self.validate_trigger()?;
        let lasts = self.lasts();
        if !(1..=MAX_EXPIRY).contains(&lasts) {
            return Err(Refused::Expiry(lasts));
        }
        match (self.kind, self.latency_ms) {
            (Kind::Latency, None) => return Err(Refused::NoLatency),
            (Kind::Latency, Some(0)) => return Err(Refused::Zero("latency_ms")),
            (Kind::Latency, Some(latency)) if latency > u64::from(lasts) * 1000 => {
                return Err(Refused::LatencyOutlastsFault(lasts));
            }
            (Kind::Latency, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(Refused::OnlyFor { field: "latency_ms", kind: Kind::Latency }),
        }
        match (self.kind, self.copies) {
            (Kind::Duplicate, Some(0)) => Err(Refused::Zero("copies")),
            (Kind::Duplicate, _) | (_, None) => Ok(()),
            (_, Some(_)) => Err(Refused::OnlyFor { field: "copies", kind: Kind::Duplicate }),
        }
    }

    fn validate_trigger(&self) -> Result<(), Refused> {
        match (self.probability, self.every, self.first) {
            (Some(probability), None, None) if !(0.0..=1.0).contains(&probability) => {
                Err(Refused::Probability(probability))
            }
            (None, Some(0), None) => Err(Refused::Zero("every")),
            (None, None, Some(0)) => Err(Refused::Zero("first")),
            (None, None, _) | (None, _, None) | (_, None, None) => Ok(()),
            _ => Err(Refused::TwoTriggers),
        }
    }
}

setters! {
    /// In milliseconds.
    FaultSpec.latency_ms: latency(u64),
    FaultSpec.copies: copies(u8),
    FaultSpec.probability: probability(f64),
    FaultSpec.every: every(u32),
    FaultSpec.first: first(u32),
    FaultSpec.skip: skip(u32),
    FaultSpec.seed: seed(u64),
    FaultSpec.expires_in_seconds: expires_in(u32),
    Scope.saga_id: saga(Uuid),
    Scope.order_id: order(Uuid),
    Scope.sku: sku(impl Into<String>),
    Scope.customer_id: customer(impl Into<String>),
    Scope.step: step(impl Into<String>),
}

impl Scope {
    /// Whether this subject matches all given values. An unknown value of a subject does not match.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.saga_id.is_none_or(|id| subject.saga_id == Some(id))
            && self.order_id.is_none_or(|id| subject.order_id == Some(id))
            && self.sku.as_ref().is_none_or(|sku| subject.skus.contains(sku))
            && self.customer_id.as_deref().is_none_or(|id| subject.customer_id.as_deref() == Some(id))
            && self.step.as_deref().is_none_or(|step| subject.step == Some(step))
    }

    fn is_everything(&self) -> bool {
        *self == Scope::default()
    }
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}
