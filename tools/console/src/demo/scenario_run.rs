//! The run of one scenario: numbered steps, claims that are checked and printed, and their record. The submodules place orders
//! and inject faults.

mod breakage;
mod crowd;
mod orders;

use std::{fmt::Debug, time::Duration};

use uuid::Uuid;

use super::{
    host_script::StepPause,
    processes::Processes,
    record::{Line, Record},
    undo::Undos,
};
use crate::{
    audit::Stores,
    say,
    suite::{Suite, SuiteError, until},
};

/// How long a saga without faults may take, far more than it needs.
pub(super) const SAGA_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct ScenarioRun {
    /// The suite as the scenario reaches it now, possibly through second replicas.
    pub(super) suite: Suite,
    /// The suite through the first replicas.
    pub(super) home: Suite,
    pub(super) processes: Processes,
    pub(super) stores: Stores,
    pub(super) record: Record,
    pub(super) undos: Undos,
    /// The annotation on all dashboards with the scenario's name.
    pub(super) annotation: Option<Uuid>,
    /// The password of the broker's user `inventory`, from the scripts.
    pub(super) publisher_password: String,
    pub(super) pause: StepPause,
}

impl ScenarioRun {
    /// Prints the next step, and waits for Enter with `--pause`.
    pub(super) async fn step(&mut self, what: &str) {
        let number = self.record.step(what);
        say(format_args!("{number}. {what}"));
        self.pause.wait().await;
    }

    /// Begins the scenario's annotation on all dashboards. Its failure does not affect the scenario.
    pub(super) async fn begin_annotation(&mut self, title: &str) {
        match self.home.begin_annotation(title).await {
            Ok(annotation) => self.annotation = annotation,
            Err(error) => self.note(&format!("the scenario is not annotated on the dashboards: {error}")),
        }
    }

    async fn end_annotation(&mut self) {
        let Some(annotation) = self.annotation.take() else { return };
        if let Err(error) = self.home.end_annotation(annotation).await {
            self.note(&format!("the annotation on the dashboards was not ended: {error}"));
        }
    }

    /// Prints and records something that is not checked.
    pub(super) fn note(&self, what: &str) {
        say(format_args!("     {what}"));
        self.record.line(Line::Note(what.to_owned()));
    }

    /// Prints and records whether a claim holds.
    pub(super) fn claim(&self, claim: &str, holds: bool) {
        say(format_args!("   {}  {claim}", if holds { "ok    " } else { "FAILED" }));
        self.record.line(Line::Claim { text: claim.to_owned(), holds });
    }

    /// Claims that a value is as expected, and prints it if not.
    pub(super) fn claim_is<A: Debug + PartialEq<E>, E: Debug>(&self, claim: &str, actual: A, expected: E) {
        if actual == expected {
            self.claim(claim, true);
        } else {
            self.claim(&format!("{claim}: is {actual:?}, not {expected:?}"), false);
        }
    }

    /// Claims that `ask` finds a value soon, and returns it.
    pub(super) async fn claim_soon<T, Answer>(&self, claim: &str, ask: impl FnMut() -> Answer) -> anyhow::Result<T>
    where
        Answer: Future<Output = Result<Option<T>, SuiteError>>,
    {
        let found = until(SAGA_TIMEOUT, ask).await;
        self.claim(claim, matches!(found, Ok(Some(_))));
        found?.ok_or_else(|| anyhow::anyhow!("not within {}: {claim}", humantime::format_duration(SAGA_TIMEOUT)))
    }
}
