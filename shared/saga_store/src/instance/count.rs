//! The metrics of sagas, counted after their transaction is committed.

use std::collections::HashMap;

use messaging::{
    Metrics,
    metrics::{SagaLabel, SagaOutcome, SagaReason, SagaStep, StepStatusLabel, TraceLabel},
};
use saga::{SagaDefinition, Status};
use uuid::Uuid;

use super::JournalEntry;

/// What the write of a saga returns. Times are in seconds.
pub(super) struct Written {
    pub(super) saga_id: Uuid,
    pub(super) since_start: f64,
    pub(super) failed_at_step: Option<String>,
    /// None unless it is COMPENSATED.
    pub(super) compensated_in: Option<f64>,
    /// It was COMPLETED before it was compensated.
    pub(super) reopened: bool,
}

pub(super) fn start(metrics: &Metrics, definition: &SagaDefinition, step: &'static str, count: u64) {
    metrics.saga_started.get_or_create_owned(&SagaLabel { saga_type: definition.saga_type }).inc_by(count);
    metrics.saga_steps.get_or_create_owned(&StepStatusLabel { step, status: "COMPLETED" }).inc_by(count);
}

/// Counts each step, and its saga's transition.
pub(super) fn journal(
    metrics: &Metrics,
    definition: &SagaDefinition,
    journal: &[JournalEntry],
    written: &HashMap<Uuid, Written>,
) {
    for entry in journal {
        let label = StepStatusLabel { step: entry.step, status: entry.status };
        metrics.saga_steps.get_or_create_owned(&label).inc();
        if entry.before != entry.after
            && let Some(saga) = written.get(&entry.saga_id)
        {
            transition(metrics, definition, entry, saga);
        }
    }
}

fn transition(metrics: &Metrics, definition: &SagaDefinition, entry: &JournalEntry, saga: &Written) {
    let saga_type = definition.saga_type;
    let of_type = SagaLabel { saga_type };
    let exemplar = || entry.sampled.then(|| TraceLabel::new(entry.trace_id.clone()));
    let ended = |outcome| {
        let duration = metrics.saga_duration.get_or_create_owned(&SagaOutcome { saga_type, outcome });
        duration.observe(saga.since_start, exemplar(), None);
    };
    match (entry.before, entry.after) {
        (_, Status::Completed) => {
            metrics.saga_completed.get_or_create_owned(&of_type).inc();
            ended("completed");
        }
        (_, Status::Compensated) => {
            let reason = known(definition, saga.failed_at_step.as_deref());
            metrics.saga_compensated.get_or_create_owned(&SagaReason { saga_type, reason }).inc();
            let duration = metrics.saga_compensation_duration.get_or_create_owned(&of_type);
            duration.observe(saga.compensated_in.unwrap_or_default(), exemplar(), None);
            if !saga.reopened {
                ended("compensated");
            }
        }
        (_, Status::TimedOut) => {
            metrics.saga_timed_out.get_or_create_owned(&of_type).inc();
        }
        (_, Status::Failed) => {
            metrics.saga_failed.get_or_create_owned(&of_type).inc();
        }
        (Status::Failed, Status::Compensating) => {
            metrics.saga_resumed.get_or_create_owned(&of_type).inc();
        }
        (_, Status::Compensating) => {
            let label = SagaStep { saga_type, step: entry.step };
            metrics.saga_compensations_started.get_or_create_owned(&label).inc();
        }
        (_, Status::Started | Status::InProgress) => {}
    }
}

/// The step's static name, from the saga's table.
fn known(definition: &SagaDefinition, step: Option<&str>) -> &'static str {
    definition.steps.iter().find(|s| Some(s.name) == step).map_or("unknown", |s| s.name)
}
