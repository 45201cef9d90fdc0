//! Actions on many entries: a dry run selects them and freezes the set, so that the action that follows concerns exactly these.

use bootstrap::{Problem, http::object};
use messaging::frozen_set::{self, Of};
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::expect_reason;

/// Which entries, and the reason: those of a filter, or those that a dry run has selected.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, bound = "F: Deserialize<'de>")]
pub(crate) struct FrozenBulk<F> {
    #[serde(default = "none", deserialize_with = "filter")]
    filter: Option<F>,
    /// The `frozen_set` that a dry run has answered, instead of a filter.
    frozen_set: Option<Uuid>,
    /// How many a filter selects at most, the oldest first; 100 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<i64>,
    /// Only report and freeze the selected entries, without a change to them. True by default.
    #[serde(default = "super::yes")]
    pub(super) dry_run: bool,
    /// Recorded in each entry's history, with the name in `x-actor`.
    #[schema(min_length = 1, max_length = 500)]
    pub(super) reason: String,
}

/// The entries that an action on many concerns.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Selected {
    dry_run: bool,
    /// The number of entries that match the filter, or that are in the frozen set.
    matched: i64,
    /// The selected ones, oldest first, up to the limit.
    pub(super) ids: Vec<Uuid>,
    /// Of a dry run: names exactly these entries in the request that follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen_set: Option<Uuid>,
}

/// The result of a bulk discard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiscardBody {
    #[serde(flatten)]
    pub(super) selected: Selected,
    /// The number of entries that were discarded; the others had been decided before.
    pub(super) discarded: usize,
}

impl<F> FrozenBulk<F> {
    /// The entries; `select` applies the filter.
    ///
    /// # Errors
    /// 422 for an invalid request.
    pub(super) async fn selected(
        &self,
        pool: &PgPool,
        of: Of,
        actor: &str,
        select: impl AsyncFnOnce(&F, i64) -> Result<(i64, Vec<Uuid>), sqlx::Error>,
    ) -> Result<Selected, Problem> {
        expect_reason(&self.reason)?;
        let limit = self.limit.unwrap_or(100);
        if !(1..=10_000).contains(&limit) {
            return Err(Problem::invalid("/limit", "A number of entries, 1 to 10,000."));
        }
        let (matched, ids) = match (&self.filter, self.frozen_set) {
            (Some(filter), None) => select(filter, limit).await?,
            (None, Some(set)) if !self.dry_run => {
                let found = frozen_set::frozen(pool, of, set).await?;
                let ids = found.ok_or_else(|| Problem::invalid("/frozen_set", "No dry run has frozen this set."))?;
                (i64::try_from(ids.len()).unwrap_or(i64::MAX), ids)
            }
            _ => return Err(Problem::invalid("/filter", "Either a filter, or the frozen set of a dry run.")),
        };
        let frozen_set = match self.dry_run {
            true => Some(frozen_set::freeze(pool, of, actor, &ids).await?),
            false => None,
        };
        Ok(Selected { dry_run: self.dry_run, matched, ids, frozen_set })
    }

    /// For what cannot be undone: a filter only in a dry run.
    ///
    /// # Errors
    /// 422 without the set of a dry run.
    pub(super) fn expect_frozen(&self) -> Result<(), Problem> {
        if self.dry_run || self.frozen_set.is_some() {
            return Ok(());
        }
        Err(Problem::invalid("/frozen_set", "A discard names the frozen set of a dry run."))
    }
}

/// No default of the filter itself is needed.
fn none<F>() -> Option<F> {
    None
}

fn filter<'de, D: Deserializer<'de>, F: Deserialize<'de>>(deserializer: D) -> Result<Option<F>, D::Error> {
    object(deserializer).map(Some)
}
