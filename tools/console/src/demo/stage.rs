//! What every scenario needs: numbered steps, claims that are checked aloud, and a record of it all. The rest of the
//! stage is below this module: orders, crowds of them, and everything that can be broken.

mod breakage;
mod crowd;
mod orders;

use std::{fmt::Debug, time::Duration};

use uuid::Uuid;

use super::{
    pace::Pace,
    processes::Processes,
    record::{Line, Record},
    undo::Undos,
};
use crate::{
    audit::Stores,
    suite::{Suite, SuiteError, until},
};

/// How long a saga without trouble may take; far more than it needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Stage {
    /// The suite as the scenario sees it just now; maybe through second replicas.
    pub(super) suite: Suite,
    /// The suite through its first replicas.
    pub(super) home: Suite,
    pub(super) processes: Processes,
    pub(super) stores: Stores,
    pub(super) record: Record,
    pub(super) undos: Undos,
    /// The band on all boards that has the scenario's name.
    pub(super) annotation: Option<Uuid>,
    /// Publishes to inventory's stream, for whom the scripts have given us its password.
    pub(super) publisher_password: String,
    pub(super) pace: Pace,
}

impl Stage {
    /// Announces the next step, and waits for Enter if that was asked for.
    pub(super) async fn step(&mut self, what: &str) {
        let number = self.record.step(what);
        println!("{number}. {what}");
        self.pace.wait().await;
    }

    /// Begins the scenario's band on all boards. It is for those who look on: without it the scenario is played likewise.
    pub(super) async fn begin_annotation(&mut self, title: &str) {
        match self.home.begin_annotation(title).await {
            Ok(annotation) => self.annotation = annotation,
            Err(error) => self.note(&format!("no board shows when the scenario is played: {error}")),
        }
    }

    /// Ends it, when everything is mended.
    async fn end_annotation(&mut self) {
        let Some(annotation) = self.annotation.take() else { return };
        if let Err(error) = self.home.end_annotation(annotation).await {
            self.note(&format!("boards go on showing the scenario: {error}"));
        }
    }

    /// Tells something that is not checked.
    pub(super) fn note(&self, what: &str) {
        println!("     {what}");
        self.record.line(Line::Note(what.to_owned()));
    }

    /// Says whether a claim holds.
    pub(super) fn claim(&self, claim: &str, holds: bool) {
        println!("   {}  {claim}", if holds { "ok    " } else { "FAILED" });
        self.record.line(Line::Claim { text: claim.to_owned(), holds });
    }

    /// Claims that something is as expected, and says what it is when it is not.
    pub(super) fn claim_is<A: Debug + PartialEq<E>, E: Debug>(&self, claim: &str, actual: A, expected: E) {
        if actual == expected {
            self.claim(claim, true);
        } else {
            self.claim(&format!("{claim}: is {actual:?}, not {expected:?}"), false);
        }
    }

    /// Claims that something comes to be, and waits for it; what came.
    pub(super) async fn claim_soon<T, Asked>(
        &self,
        claim: &str,
        limit: Duration,
        ask: impl FnMut() -> Asked,
    ) -> anyhow::Result<T>
    where
        Asked: Future<Output = Result<Option<T>, SuiteError>>,
    {
        let found = until(limit, ask).await;
        self.claim(claim, matches!(found, Ok(Some(_))));
        found?.ok_or_else(|| anyhow::anyhow!("not within {}: {claim}", humantime::format_duration(limit)))
    }
}
