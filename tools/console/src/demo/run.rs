//! One scenario from its preflight to its verdict. However it ends, its faults are undone and its report is written.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::bail;

use super::{
    Controls, DemoArgs,
    environment::{self, Environment},
    preflight::{self, Need},
    record::Record,
    report::{self, Evidence},
    scenario_run::ScenarioRun,
    scenarios::Scenario,
    timeline,
    undo::Undos,
};
use crate::{
    audit, interrupted,
    suite::{SERVICES, Suite},
};

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

pub(super) fn scenario_run(suite: &Suite, args: &DemoArgs, controls: &Controls) -> ScenarioRun {
    let addresses = suite.addresses();
    let mut servers: Vec<(String, String)> =
        SERVICES.iter().map(|s| (addresses.of(*s).to_owned(), s.0.to_owned())).collect();
    servers.push((addresses.gateway_url.clone(), "gateway".to_owned()));
    let record = Record::new(servers);
    let listening = record.clone();
    let suite = suite.clone().with_listener(Arc::new(move |exchange| listening.exchange(exchange)));
    ScenarioRun {
        home: suite.clone(),
        suite,
        processes: controls.processes.clone(),
        stores: args.stores.clone(),
        record,
        undos: Undos::default(),
        annotation: None,
        publisher_password: args.publisher_password.clone(),
        pause: controls.pause.clone(),
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
    controls: &Controls,
) -> anyhow::Result<Verdict> {
    let (key, name, about) = (&scenario.key(), &scenario.title(), scenario.about);
    println!("=== {name}: {about}");
    let mut run = scenario_run(suite, args, controls);
    let environment = begin(&run, args, scenario.needs).await?;
    run.begin_annotation(name).await;
    let (report, interrupted) = tokio::select! {
        report = play_and_audit(scenario, &mut run) => (report, false),
        () = interrupted() => (None, true),
    };
    let ending = Ending { key, name, about, environment, report, interrupted };
    Ok(conclude(ending, &mut run, args).await)
}

/// Checks whether the run may begin, and reads its environment.
pub(super) async fn begin(run: &ScenarioRun, args: &DemoArgs, needs: &[Need]) -> anyhow::Result<Environment> {
    let checked = async {
        preflight::check(&run.home, &run.processes, needs, &args.publisher_password).await?;
        Ok(environment::read(&args.stores, &args.revision).await?)
    };
    tokio::select! {
        environment = checked => environment,
        () = interrupted() => bail!("interrupted"),
    }
}

pub(super) struct Ending<'a> {
    /// Names the report.
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    pub(super) about: &'a str,
    pub(super) environment: Environment,
    pub(super) report: Option<audit::Report>,
    pub(super) interrupted: bool,
}

/// Cleans up after an interrupted run, writes the report, and returns the verdict.
pub(super) async fn conclude(ending: Ending<'_>, run: &mut ScenarioRun, args: &DemoArgs) -> Verdict {
    if ending.interrupted {
        println!();
        run.claim("the scenario completes: interrupted", false);
        run.clean_up().await;
    }
    let Ending { name, interrupted, .. } = ending;
    let passed = run.record.failed() == 0;
    let verdict = Verdict { passed, interrupted, took: run.record.elapsed(), name: name.to_owned() };
    let sagas = run.record.lock().sagas.clone();
    let evidence = Evidence {
        key: ending.key,
        title: name,
        about: ending.about,
        verdict: if passed { "PASS" } else { "FAIL" },
        at: ending.environment.now,
        versions: &ending.environment.versions,
        record: &run.record,
        // Without order there are no journals; the rest is still worth writing.
        paths: &timeline::paths(&run.home, &sagas).await.unwrap_or_default(),
        audit: ending.report.as_ref(),
    };
    match report::write(&args.report, &evidence) {
        Ok(path) => println!("     {}", path.display()),
        // The verdict does not depend on the report.
        Err(error) => println!("     the report was not written: {error:#}"),
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
                print!("{report}");
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
    run.all_ready().await?;
    Ok(audit::audit(&run.stores, &run.suite.addresses().gateway_url, options).await?)
}
