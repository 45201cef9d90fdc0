//! One scenario from its preflight to its verdict. However it ends, its faults are undone and its report is written.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::bail;

use super::{
    Demo,
    preflight::{self, Need},
    record::Record,
    report::{self, Ending, Environment},
    scenario_run::ScenarioRun,
    scenarios::Scenario,
    undo::Undos,
};
use crate::{audit, interrupted, say, suite::SERVICES};

/// How long the suite may take to become quiescent after a scenario.
const SETTLE: Duration = Duration::from_secs(30);
/// Enough for events in flight to arrive; lost ones never do.
const SETTLE_DAMAGED: Duration = Duration::from_secs(5);

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

pub(super) fn scenario_run(demo: &Demo<'_>) -> ScenarioRun {
    let addresses = demo.suite.addresses();
    let mut servers: Vec<(String, String)> =
        SERVICES.iter().map(|s| (addresses.of(*s).to_owned(), s.0.to_owned())).collect();
    servers.push((addresses.gateway_url.clone(), "gateway".to_owned()));
    let record = Record::new(servers);
    let listening = record.clone();
    let suite = demo.suite.clone().with_listener(Arc::new(move |exchange| listening.exchange(exchange)));
    ScenarioRun {
        home: suite.clone(),
        suite,
        processes: demo.processes.clone(),
        stores: demo.args.stores.clone(),
        record,
        undos: Undos::default(),
        annotation: None,
        publisher_password: demo.args.publisher_password.clone(),
        pause: demo.pause.clone(),
    }
}

/// Plays one scenario and audits the suite.
///
/// # Errors
/// Only when the scenario may not begin.
pub(super) async fn play(scenario: &Scenario, demo: &Demo<'_>) -> anyhow::Result<Verdict> {
    let (key, name, about) = (&scenario.key(), &scenario.title(), scenario.about);
    say(format_args!("=== {name}: {about}"));
    let mut run = scenario_run(demo);
    let environment = begin(&run, demo, scenario.needs).await?;
    run.begin_annotation(name).await;
    let (report, interrupted) = tokio::select! {
        report = play_and_audit(scenario, &mut run) => (report, false),
        () = interrupted() => (None, true),
    };
    let ending = Ending { key, name, about, environment, report, interrupted };
    Ok(conclude(&ending, &mut run, demo).await)
}

/// Checks whether the run may begin, and reads its environment.
pub(super) async fn begin(run: &ScenarioRun, demo: &Demo<'_>, needs: &[Need]) -> anyhow::Result<Environment> {
    let checked = async {
        preflight::check(run, needs).await?;
        Ok(Environment::read(&run.stores, &demo.args.revision).await?)
    };
    tokio::select! {
        environment = checked => environment,
        () = interrupted() => bail!("interrupted"),
    }
}

/// Cleans up after an interrupted run, writes the report, and returns the verdict.
pub(super) async fn conclude(ending: &Ending<'_>, run: &mut ScenarioRun, demo: &Demo<'_>) -> Verdict {
    if ending.interrupted {
        say("");
        run.claim("the scenario completes: interrupted", false);
        run.clean_up().await;
    }
    let verdict = Verdict {
        name: ending.name.to_owned(),
        passed: run.record.failed() == 0,
        interrupted: ending.interrupted,
        took: run.record.elapsed(),
    };
    match report::write(&demo.args.report, ending, run).await {
        Ok(path) => say(format_args!("     {}", path.display())),
        // The verdict does not depend on the report.
        Err(error) => say(format_args!("     the report was not written: {error:#}")),
    }
    verdict
}

async fn play_and_audit(scenario: &Scenario, run: &mut ScenarioRun) -> Option<audit::Report> {
    if let Err(error) = perform(scenario, run).await {
        run.claim(&format!("the scenario completes: {error:#}"), false);
    }
    let (what, settle) = match scenario.violated {
        [] => ("The audit, after everything in flight has ended", SETTLE),
        _ => ("The audit must find the damage", SETTLE_DAMAGED),
    };
    run.step(what).await;
    run.clean_up().await;
    match audited(run, &audit::Options { settle, ..Default::default() }).await {
        Ok(report) => {
            if scenario.violated.is_empty() {
                run.claim(&format!("all {} invariants hold", report.invariants.len()), report.clean);
            }
            if !report.clean {
                say(report.to_string().trim_end());
            }
            for wanted in scenario.violated {
                let found = report.invariants.iter().find(|verdict| verdict.name == *wanted);
                let count = found.map_or(0, |verdict| verdict.violations);
                run.claim(&format!("{wanted} is violated, {count} times"), count > 0);
            }
            Some(report)
        }
        Err(error) => {
            run.claim(&format!("the audit completes: {error:#}"), false);
            None
        }
    }
}

async fn perform(scenario: &Scenario, run: &mut ScenarioRun) -> anyhow::Result<()> {
    if scenario.needs.iter().any(|need| matches!(need, Need::Processes | Need::Broker)) {
        run.extend_deadlines_for_pauses().await?;
    }
    (scenario.play)(run).await
}

/// Audits the suite when all servers are ready.
async fn audited(run: &ScenarioRun, options: &audit::Options) -> anyhow::Result<audit::Report> {
    run.suite.become_ready().await?;
    Ok(audit::audit(&run.stores, &run.suite.addresses().gateway_url, options).await?)
}
