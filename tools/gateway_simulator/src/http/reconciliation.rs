//! Bodies of `/v1/reconciliations`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{CurrencyTotalsView, OutcomeView};
use crate::{
    charge::IdempotencyKey,
    domain::{Reconciliation, Statement},
};

/// What to compare; all of it may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReconciliationBody {
    /// A position that was told before: what has changed since is listed, and left out of the sums.
    since: Option<u64>,
    /// Idempotency keys that are left out of the sums.
    #[serde(default)]
    without: Vec<String>,
    /// Idempotency keys whose outcomes are listed.
    #[serde(default)]
    keys: Vec<String>,
}

/// The ledger as of one position.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatementView {
    /// How many entries the ledger has.
    position: u64,
    totals: Vec<CurrencyTotalsView>,
    /// Of each key that has changed since, what became of it.
    changed: Vec<OutcomeView>,
    /// What became of the keys that were asked for, without those that were never seen.
    outcomes: Vec<OutcomeView>,
}

impl From<ReconciliationBody> for Reconciliation {
    fn from(ReconciliationBody { since, without, keys }: ReconciliationBody) -> Self {
        // What cannot be a key was never seen as one.
        let parsed = |keys: Vec<String>| keys.iter().filter_map(|key| IdempotencyKey::parse(key)).collect();
        Self { since, without: parsed(without), keys: parsed(keys) }
    }
}

impl From<Statement> for StatementView {
    fn from(statement: Statement) -> Self {
        Self {
            position: statement.position,
            totals: statement.totals.into_iter().map(Into::into).collect(),
            changed: statement.changed.into_iter().map(Into::into).collect(),
            outcomes: statement.outcomes.into_iter().map(Into::into).collect(),
        }
    }
}
