//! Counters that are exported as zero from the start: an alert cannot see the first increase of a counter without a prior value.

use saga::{SagaDefinition, Service, Step};

use super::{
    LetterAction, Metrics, Outcome, SagaLabel, SagaOutcome, SagaReason, SagaStep, StepLabel, StepOutcome,
    StepStatusLabel,
};
use crate::dead_letter::Foreseen;

impl Metrics {
    /// Creates the counters of a service that consumes these steps and participates in the saga.
    pub fn begin_at_zero(&self, service: Service, steps: impl Iterator<Item = &'static Step>, saga: &SagaDefinition) {
        for step in steps {
            self.step_at_zero(step.name);
        }
        self.saga_at_zero(service, saga);
        for outcome in ["acknowledged", "duplicate", "refused", "out_of_step", "away"] {
            drop(self.outbox_attempts.get_or_create(&Outcome { outcome }));
        }
    }

    fn step_at_zero(&self, step: &'static str) {
        let counters = [
            &self.inbox_applied,
            &self.inbox_duplicates,
            &self.refusals,
            &self.step_failures,
            &self.step_retries_helped,
            &self.handed_back,
            &self.dead_letters,
        ];
        for counter in counters {
            drop(counter.get_or_create(&StepLabel { step }));
        }
        for outcome in ["retried", "exhausted"] {
            drop(self.step_retries.get_or_create(&StepOutcome { step, outcome }));
        }
        let foreseen = Foreseen::ALL.map(|outcome| ("dry_run", outcome.as_str()));
        let done = [("replay", "resolved"), ("replay", "failed"), ("discard", "resolved")];
        for (action, outcome) in foreseen.into_iter().chain(done) {
            drop(self.dead_letter_actions.get_or_create(&LetterAction { step: step.to_owned(), action, outcome }));
        }
    }

    fn saga_at_zero(&self, service: Service, saga: &SagaDefinition) {
        let saga_type = saga.saga_type;
        let counters =
            [&self.saga_started, &self.saga_completed, &self.saga_timed_out, &self.saga_failed, &self.saga_resumed];
        for counter in counters {
            drop(counter.get_or_create(&SagaLabel { saga_type }));
        }
        for outcome in ["completed", "compensated"] {
            drop(self.saga_duration.get_or_create(&SagaOutcome { saga_type, outcome }));
        }
        drop(self.saga_compensation_duration.get_or_create(&SagaLabel { saga_type }));
        for step in saga.steps {
            if step.can_fail_saga() {
                drop(self.saga_compensated.get_or_create(&SagaReason { saga_type, reason: step.name }));
            }
            if step.service.is_some_and(|owner| owner != service) {
                continue;
            }
            if saga.starts_compensation(step) {
                drop(self.saga_compensations_started.get_or_create(&SagaStep { saga_type, step: step.name }));
            }
            let ends = [
                (if step.is_compensation() { "COMPENSATED" } else { "COMPLETED" }, true),
                ("FAILED", step.can_fail_saga()),
                ("SKIPPED", step.consumes().is_some()),
            ];
            for (status, _) in ends.into_iter().filter(|(_, possible)| *possible) {
                drop(self.saga_steps.get_or_create(&StepStatusLabel { step: step.name, status }));
            }
        }
    }
}
