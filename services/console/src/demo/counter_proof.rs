//! Counter-proofs: what a mechanism is for shows when it is missing. Each is played on a suite of its own that was
//! started without the mechanism, and passes when the audit finds the damage.

mod inbox;
mod outbox;

use std::{pin::Pin, time::Duration};

use anyhow::bail;

use super::{
    DemoArgs, Means,
    preflight::Need,
    run::{self, Ending},
    stage::Stage,
};
use crate::{
    audit::{self, Report},
    interrupted,
    suite::Suite,
};

/// What can be done without, to show what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mechanism {
    /// Events are published straight after the commit
    Outbox,
    /// Every delivery is applied, however often it comes
    Inbox,
}

/// Long enough for everything that still moves to arrive; what is lost does not arrive however long one waits.
const SETTLE: Duration = Duration::from_secs(5);

type Play<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

impl Mechanism {
    const fn name(self) -> &'static str {
        match self {
            Mechanism::Outbox => "outbox",
            Mechanism::Inbox => "inbox",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Mechanism::Outbox => "without an outbox, events are lost while the broker is away",
            Mechanism::Inbox => "without an inbox, an event that is delivered three times has effects three times",
        }
    }

    /// The invariants that the damage must violate.
    const fn violated(self) -> &'static [&'static str] {
        match self {
            Mechanism::Outbox => outbox::VIOLATED,
            Mechanism::Inbox => inbox::VIOLATED,
        }
    }

    fn play(self, stage: &mut Stage) -> Play<'_> {
        match self {
            Mechanism::Outbox => Box::pin(outbox::play(stage)),
            Mechanism::Inbox => Box::pin(inbox::play(stage)),
        }
    }
}

/// Plays the counter-proof; `Ok(true)` when the damage was found.
pub(super) async fn command(
    mechanism: Mechanism,
    suite: &Suite,
    args: &DemoArgs,
    means: &Means,
) -> anyhow::Result<bool> {
    if !args.throw_away {
        bail!("a counter-proof damages the suite: ./scripts/demo --without starts one of its own for it");
    }
    println!("=== without {}: {}", mechanism.name(), mechanism.about());
    let mut stage = run::stage(suite, args, means);
    let surroundings = run::begin(&stage, args, &[Need::Faults, Need::Processes]).await?;
    stage.begin_annotation(&format!("without {}", mechanism.name())).await;
    let (report, interrupted) = tokio::select! {
        report = play_and_audit(mechanism, &mut stage) => (report, false),
        () = interrupted() => (None, true),
    };
    let key = format!("without-{}", mechanism.name());
    let ending = Ending { key: &key, name: &key, about: mechanism.about(), surroundings, report, interrupted };
    let verdict = run::conclude(ending, &mut stage, args).await;
    println!("{verdict}");
    Ok(verdict.passed)
}

async fn play_and_audit(mechanism: Mechanism, stage: &mut Stage) -> Option<Report> {
    if let Err(error) = perform(mechanism, stage).await {
        stage.claim(&format!("the counter-proof comes to its end: {error:#}"), false);
    }
    stage.step("The audit has to find the damage").await;
    stage.tidy_up().await;
    let options = audit::Options { settle: SETTLE, ..Default::default() };
    match run::audited(stage, &options).await {
        Ok(report) => {
            print!("{report}");
            for wanted in mechanism.violated() {
                let found = report.invariants.iter().find(|verdict| verdict.name == *wanted);
                let count = found.map_or(0, |verdict| verdict.violations);
                stage.claim(&format!("{wanted} is violated, {count} times"), count > 0);
            }
            Some(report)
        }
        Err(error) => {
            stage.claim(&format!("the audit comes to its end: {error:#}"), false);
            None
        }
    }
}

async fn perform(mechanism: Mechanism, stage: &mut Stage) -> anyhow::Result<()> {
    stage.take_time().await?;
    mechanism.play(stage).await
}
