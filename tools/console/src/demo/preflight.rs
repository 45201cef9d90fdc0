//! Whether a scenario may begin: an earlier fault would be mistaken for one of the scenario.

use anyhow::{Context, bail};

use super::{processes::Processes, scenario_run::ScenarioRun};
use crate::{
    say,
    suite::{SERVICES, Service, Suite, SuiteError},
};

/// What a scenario needs besides a working suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Services in which faults can be armed.
    Faults,
    /// Control over the suite's processes.
    Processes,
    /// A broker of the suite's own, which can be started and stopped.
    Broker,
    /// The broker's password of a service that publishes.
    Publisher,
}

/// # Errors
/// The obstacle, and the command that removes it.
pub(super) async fn check(run: &ScenarioRun, needs: &[Need]) -> anyhow::Result<()> {
    run.home.become_ready().await.context("the suite is not ready (./scripts/demo mend mends it)")?;
    for need in needs {
        provided(*need, run).await?;
    }
    let broken = broken(&run.home).await?;
    if !broken.is_empty() {
        bail!("something is broken already (./scripts/demo mend undoes injected faults):\n  {}", broken.join("\n  "));
    }
    Ok(())
}

async fn provided(need: Need, run: &ScenarioRun) -> anyhow::Result<()> {
    match need {
        Need::Faults => {
            for service in SERVICES {
                if run.home.armed_faults(service).await?.is_none() {
                    bail!(
                        "faults cannot be armed in {}: it must be built with the feature `faults`, and started with \
                         FAULTS_ENABLED=true, as ./scripts/up and docker-compose.yml do by default",
                        service.0
                    );
                }
            }
        }
        Need::Processes => {
            run.processes.run("status", "all").await?;
        }
        Need::Broker if !run.processes.run("status", "nats").await?.contains("running") => {
            bail!("this scenario stops the broker, and the suite uses an external one")
        }
        Need::Publisher if run.publisher_password.is_empty() => {
            bail!("this scenario publishes as inventory and needs its password: play it with ./scripts/demo")
        }
        Need::Broker | Need::Publisher => {}
    }
    Ok(())
}

/// Everything that is broken already, in sentences.
pub(crate) async fn broken(suite: &Suite) -> Result<Vec<String>, SuiteError> {
    let mut found = Vec::new();
    for service in SERVICES {
        let name = service.0;
        for fault in suite.armed_faults(service).await?.unwrap_or_default() {
            found.push(format!("{name}: a fault is armed: {} at {}", fault.kind, fault.point));
        }
        let breakers = suite.breakers(service).await?.items;
        for breaker in breakers.iter().filter(|breaker| breaker.state == "open") {
            found.push(format!("{name}: the breaker of {} is {}", breaker.step, breaker.state));
        }
        for consumer in suite.consumers(service).await?.iter().filter(|c| c.is_paused_by_operator()) {
            found.push(format!("{name}: the consumer of {} is paused", consumer.step));
        }
        if suite.relay(service).await?.paused {
            found.push(format!("{name}: the relay is paused"));
        }
        for letter in suite.pending_dead_letters(service).await? {
            let url = format!("{}/api/admin/dlq/{}", suite.addresses().of(service), letter.id);
            let of = format!("{name}: a dead letter of {}", letter.step);
            found.push(format!("{of} waits for your decision: POST {url}/replay or DELETE {url}"));
        }
    }
    if suite.gateway_is_armed().await? {
        found.push("faults are armed at the gateway".to_owned());
    }
    Ok(found)
}

/// Undoes everything that may be broken; `false` when something failed.
pub(super) async fn mend(suite: &Suite, processes: &Processes) -> bool {
    let mut mended = true;
    let mut report = |what: &str, done: anyhow::Result<()>| match done {
        Ok(()) => say(format_args!("ok      {what}")),
        Err(error) => {
            say(format_args!("FAILED  {what}: {error:#}"));
            mended = false;
        }
    };
    for process in ["nats", "provision", "gateway_simulator"].into_iter().chain(SERVICES.map(|service| service.0)) {
        // It fails for a process that does not run, which cannot be frozen.
        let _ = processes.run("thaw", process).await;
    }
    for service in SERVICES {
        let replica = format!("{}-2", service.0);
        report(&format!("no {replica} runs"), processes.run("stop", &replica).await.map(drop));
    }
    report("everything runs", processes.run("start", "all").await.map(drop));
    for service in SERVICES {
        // A restart resets breakers and settings.
        let name = service.0;
        report(&format!("{name} runs with its usual settings"), processes.run("restart", name).await.map(drop));
    }
    for service in SERVICES {
        report(&format!("no fault of {} is armed", service.0), suite.disarm(service).await.map_err(Into::into));
        let what = format!("{} consumes and publishes", service.0);
        report(&what, resume_all(suite, service).await.map_err(Into::into));
    }
    report("the gateway works", suite.disarm_gateway().await.map_err(Into::into));
    mended
}

async fn resume_all(suite: &Suite, service: Service) -> Result<(), SuiteError> {
    for consumer in suite.consumers(service).await?.iter().filter(|c| c.is_paused_by_operator()) {
        suite.resume_consumer(service, &consumer.step).await?;
    }
    if suite.relay(service).await?.paused {
        suite.resume_relay(service).await?;
    }
    Ok(())
}
