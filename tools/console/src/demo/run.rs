//! One scenario from its preflight to its verdict. However it ends, what it broke is taken back and its report written.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::bail;

use super::{
    DemoArgs, Means,
    preflight::{self, Need},
    record::Record,
    report::{self, Evidence},
    scenarios::Scenario,
    stage::Stage,
    surroundings::{self, Surroundings},
    timeline,
    undo::Undos,
};
use crate::{
    audit, interrupted,
    suite::{SERVICES, Suite},
};

/// How long the suite may take to come to rest after a scenario.
const SETTLE: Duration = Duration::from_secs(30);
/// Enough for everything that still moves to arrive; what is lost does not arrive however long one waits.
const SETTLE_DAMAGED: Duration = Duration::from_secs(5);

/// How a scenario ended.
pub(super) struct Verdict {
    name: String,
    pub(super) passed: bool,
    pub(super) interrupted: bool,
    took: Duration,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "PASS" } else { "FAIL" };
        write!(f, "{verdict} {:32} {:5.1} s", self.name, self.took.as_secs_f64())
    }
}

pub(super) fn stage(suite: &Suite, args: &DemoArgs, means: &Means) -> Stage {
    let addresses = suite.addresses();
    let mut servers: Vec<(String, String)> =
        SERVICES.iter().map(|s| (addresses.of(*s).to_owned(), s.0.to_owned())).collect();
    servers.push((addresses.gateway_url.clone(), "gateway".to_owned()));
    let record = Record::new(servers);
    let listening = record.clone();
    let suite = suite.clone().heard_by(Arc::new(move |exchange| listening.exchange(exchange)));
    Stage {
        home: suite.clone(),
        suite,
        processes: means.processes.clone(),
        stores: args.stores.clone(),
        record,
        undos: Undos::default(),
        annotation: None,
        publisher_password: args.publisher_password.clone(),
        pace: means.pace.clone(),
    }
}

/// Plays one scenario and audits the suite.
///
/// # Errors
/// Only when the scenario may not begin.
pub(super) async fn play(
    scenario: &Scenario,
    suite: &Suite,
    args: &DemoArgs,
    means: &Means,
) -> anyhow::Result<Verdict> {
    let (key, name, about) = (&scenario.key(), &scenario.title(), scenario.about);
    println!("=== {name}: {about}");
    let mut stage = stage(suite, args, means);
    let surroundings = begin(&stage, args, scenario.needs).await?;
    stage.begin_annotation(name).await;
    let (report, interrupted) = tokio::select! {
        report = play_and_audit(scenario, &mut stage) => (report, false),
        () = interrupted() => (None, true),
    };
    let ending = Ending { key, name, about, surroundings, report, interrupted };
    Ok(conclude(ending, &mut stage, args).await)
}

/// Looks whether the run may begin, and on what.
pub(super) async fn begin(stage: &Stage, args: &DemoArgs, needs: &[Need]) -> anyhow::Result<Surroundings> {
    let checked = async {
        preflight::check(&stage.home, &stage.processes, needs, &args.publisher_password).await?;
        Ok(surroundings::look(&args.stores, &args.revision).await?)
    };
    tokio::select! {
        surroundings = checked => surroundings,
        () = interrupted() => bail!("interrupted"),
    }
}

/// What a run has come to.
pub(super) struct Ending<'a> {
    /// Names the report.
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    pub(super) about: &'a str,
    pub(super) surroundings: Surroundings,
    pub(super) report: Option<audit::Report>,
    pub(super) interrupted: bool,
}

/// Takes back what an interrupted run has left, writes the report, and gives the verdict.
pub(super) async fn conclude(ending: Ending<'_>, stage: &mut Stage, args: &DemoArgs) -> Verdict {
    if ending.interrupted {
        println!();
        stage.claim("it comes to its end: interrupted", false);
        stage.tidy_up().await;
    }
    let Ending { name, interrupted, .. } = ending;
    let passed = stage.record.failed() == 0;
    let verdict = Verdict { passed, interrupted, took: stage.record.elapsed(), name: name.to_owned() };
    let sagas = stage.record.lock().sagas.clone();
    let evidence = Evidence {
        key: ending.key,
        title: name,
        about: ending.about,
        verdict: if passed { "PASS" } else { "FAIL" },
        at: ending.surroundings.now,
        versions: &ending.surroundings.versions,
        record: &stage.record,
        // Without order nobody can tell them; the rest is worth writing all the same.
        ways: &timeline::ways(&stage.home, &sagas).await.unwrap_or_default(),
        audit: ending.report.as_ref(),
    };
    match report::write(&args.report, &evidence) {
        Ok(path) => println!("     {}", path.display()),
        // The scenario was played and audited all the same.
        Err(error) => println!("     there is no report: {error:#}"),
    }
    verdict
}

async fn play_and_audit(scenario: &Scenario, stage: &mut Stage) -> Option<audit::Report> {
    if let Err(error) = perform(scenario, stage).await {
        stage.claim(&format!("the scenario comes to its end: {error:#}"), false);
    }
    let (what, settle) = match scenario.violated {
        [] => ("The audit, when nothing is in flight any more", SETTLE),
        _ => ("The audit has to find the damage", SETTLE_DAMAGED),
    };
    stage.step(what).await;
    stage.tidy_up().await;
    match audited(stage, &audit::Options { settle, ..Default::default() }).await {
        Ok(report) => {
            if scenario.violated.is_empty() {
                stage.claim(&format!("all {} invariants hold", report.invariants.len()), report.clean);
            }
            if !report.clean {
                print!("{report}");
            }
            for wanted in scenario.violated {
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

async fn perform(scenario: &Scenario, stage: &mut Stage) -> anyhow::Result<()> {
    if scenario.needs.iter().any(|need| matches!(need, Need::Processes | Need::Broker)) {
        stage.take_time().await?;
    }
    (scenario.play)(stage).await
}

/// The audit of a suite that works again.
async fn audited(stage: &Stage, options: &audit::Options) -> anyhow::Result<audit::Report> {
    stage.all_ready().await?;
    Ok(audit::audit(&stage.stores, &stage.suite.addresses().gateway_url, options).await?)
}
