//! Injected faults: every kind at every point where it can happen, the scope of a fault, and the routes.

mod crashes;
mod matrix;
mod replicas;
mod routes;
mod scope;

use faults::FaultPoint;

/// Why tests of arming faults do not audit.
const UNAUDITED: &str = "it checks which faults are armed; hardly an order is placed";

/// Points that the work on one event passes: nothing limits a fault there to its own events but its scope.
pub(crate) const EVENT_POINTS: [FaultPoint; 7] = [
    FaultPoint::BeforeInboxClaim,
    FaultPoint::InStep,
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommitBeforePublish,
    FaultPoint::AfterCommitBeforeAck,
    FaultPoint::GatewayCall,
    FaultPoint::AfterChargeBeforeRecord,
];
