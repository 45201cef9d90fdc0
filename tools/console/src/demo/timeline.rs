//! The sagas of a scenario, with their journals. Sagas with the same path are shown once.

use std::fmt::Write;

use futures_util::{StreamExt, TryStreamExt, stream};
use reports::Table;
use time::{OffsetDateTime, macros::format_description};
use uuid::Uuid;

use crate::suite::{Saga, SagaStep, Suite, SuiteError};

/// How many different paths are shown in full.
const SHOWN: usize = 6;
/// How many sagas are read.
const MOST_SAGAS: usize = 300;

/// Sagas with the same steps: the first of them, and how many there are.
pub(super) struct SagaPath {
    pub(super) saga: Saga,
    pub(super) count: usize,
}

/// The paths of these sagas, the most frequent first.
pub(super) async fn paths(suite: &Suite, sagas: &[Uuid]) -> Result<Vec<SagaPath>, SuiteError> {
    const PARALLEL: usize = 10;
    let found: Vec<Option<Saga>> = stream::iter(sagas.iter().take(MOST_SAGAS))
        .map(|saga_id| suite.saga(*saga_id))
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    let mut paths: Vec<SagaPath> = Vec::new();
    for saga in found.into_iter().flatten() {
        match paths.iter_mut().find(|path| same_path(&path.saga, &saga)) {
            Some(path) => path.count += 1,
            None => paths.push(SagaPath { saga, count: 1 }),
        }
    }
    paths.sort_by_key(|path| std::cmp::Reverse(path.count));
    Ok(paths)
}

fn same_path(one: &Saga, other: &Saga) -> bool {
    let steps = |saga: &Saga| saga.steps.iter().map(|s| (s.step.clone(), s.status.clone())).collect::<Vec<_>>();
    one.status == other.status && steps(one) == steps(other)
}

pub(super) fn markdown(paths: &[SagaPath]) -> String {
    let mut text = String::new();
    for path in paths.iter().take(SHOWN) {
        let others = match path.count {
            1 => String::new(),
            count => format!(", and {} more like it", count - 1),
        };
        let _ = writeln!(text, "### {} `{}`{others}\n", path.saga.status, path.saga.saga_id);
        let mut steps = Table::new(["", "after", "service", "step", "event", "status", "reason", "fault"]);
        path.saga.steps.iter().for_each(|step| steps.row(row(step, path.saga.started_at)));
        let _ = writeln!(text, "{}", steps.markdown());
    }
    let rest: usize = paths.iter().skip(SHOWN).map(|path| path.count).sum();
    if rest > 0 {
        let _ = writeln!(text, "{rest} more sagas took other paths.\n");
    }
    text
}

fn row(step: &SagaStep, started_at: OffsetDateTime) -> [String; 8] {
    let after = (step.occurred_at - started_at).as_seconds_f64();
    let SagaStep { position, service, step, event_type, status, reason, fault, .. } = step.clone();
    let (reason, fault) = (reason.unwrap_or_default(), fault.unwrap_or_default());
    [position.to_string(), format!("{after:.3} s"), service, step, event_type, status, reason, fault]
}

pub(super) fn moment(at: OffsetDateTime) -> String {
    at.format(format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC")).unwrap_or_default()
}

pub(super) fn stamp(at: OffsetDateTime) -> String {
    at.format(format_description!("[year][month][day]-[hour][minute][second]")).unwrap_or_default()
}
