//! The sagas that a scenario was about, with their journals. Sagas that went the same way are told once.

use std::fmt::Write;

use futures_util::{StreamExt, TryStreamExt, stream};
use time::{OffsetDateTime, macros::format_description};
use uuid::Uuid;

use crate::suite::{Saga, SagaStep, Suite, SuiteError};

/// Of the different ways that the sagas went, so many are told in full.
const WAYS: usize = 6;
/// Of a crowd's sagas, so many are looked at.
const LOOKED_AT: usize = 300;

/// Sagas that went the same way: the first of them, and how many there are.
pub(super) struct Way {
    pub(super) saga: Saga,
    pub(super) count: usize,
}

/// The ways of these sagas, the most usual first.
pub(super) async fn ways(suite: &Suite, sagas: &[Uuid]) -> Result<Vec<Way>, SuiteError> {
    const PARALLEL: usize = 10;
    let found: Vec<Option<Saga>> = stream::iter(sagas.iter().take(LOOKED_AT))
        .map(|saga_id| suite.saga(*saga_id))
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    let mut ways: Vec<Way> = Vec::new();
    for saga in found.into_iter().flatten() {
        match ways.iter_mut().find(|way| same_way(&way.saga, &saga)) {
            Some(way) => way.count += 1,
            None => ways.push(Way { saga, count: 1 }),
        }
    }
    ways.sort_by_key(|way| std::cmp::Reverse(way.count));
    Ok(ways)
}

fn same_way(one: &Saga, other: &Saga) -> bool {
    let steps = |saga: &Saga| saga.steps.iter().map(|s| (s.step.clone(), s.status.clone())).collect::<Vec<_>>();
    one.status == other.status && steps(one) == steps(other)
}

/// The ways as Markdown.
pub(super) fn markdown(ways: &[Way]) -> String {
    let mut text = String::new();
    for way in ways.iter().take(WAYS) {
        let others = match way.count {
            1 => String::new(),
            count => format!(", and {} more like it", count - 1),
        };
        let _ = writeln!(text, "### {} `{}`{others}\n", way.saga.status, way.saga.saga_id);
        let _ = writeln!(text, "| | after | service | step | event | status | reason | fault |");
        let _ = writeln!(text, "|---|---|---|---|---|---|---|---|");
        way.saga.steps.iter().for_each(|step| row(&mut text, step, way.saga.started_at));
        text.push('\n');
    }
    let untold: usize = ways.iter().skip(WAYS).map(|way| way.count).sum();
    if untold > 0 {
        let _ = writeln!(text, "{untold} more sagas went other ways.\n");
    }
    text
}

fn row(text: &mut String, step: &SagaStep, started_at: OffsetDateTime) {
    let after = (step.occurred_at - started_at).as_seconds_f64();
    let SagaStep { position, service, step: name, event_type, status, reason, fault, .. } = step;
    let told = |cell: &Option<String>| cell.as_deref().unwrap_or_default().replace('|', "\\|").replace('\n', " ");
    let (reason, fault) = (told(reason), told(fault));
    let _ = writeln!(
        text,
        "| {position} | {after:.3} s | {service} | {name} | {event_type} | {status} | {reason} | {fault} |"
    );
}

/// A moment as it is written in reports.
pub(super) fn moment(at: OffsetDateTime) -> String {
    at.format(format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC")).unwrap_or_default()
}

/// A moment as it is written in file names.
pub(super) fn stamp(at: OffsetDateTime) -> String {
    at.format(format_description!("[year][month][day]-[hour][minute][second]")).unwrap_or_default()
}
