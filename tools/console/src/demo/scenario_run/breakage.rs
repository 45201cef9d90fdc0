//! The faults that a scenario can inject. Each is noted before it happens, so that it is undone even when the scenario is
//! interrupted.

use std::{collections::BTreeSet, time::Duration};

use anyhow::bail;
use tokio::time::sleep;

use super::ScenarioRun;
use crate::{
    demo::{processes::Settings, undo::Undo},
    suite::{ArmedFault, FaultSpec, GatewayFaults, SERVICES, Service, Suite},
};

/// Faults expire after this, longer than any scenario takes, even if they cannot be disarmed.
const EXPIRY: Duration = Duration::from_secs(120);
/// With pauses a scenario may take long.
const EXPIRY_WITH_PAUSES: Duration = Duration::from_secs(3_600);

impl ScenarioRun {
    pub(crate) async fn stop(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Process("start", process.to_owned()));
        self.processes.run("stop", process).await.map(drop)
    }

    /// Ends a process as a crash does.
    pub(crate) async fn kill(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Process("start", process.to_owned()));
        self.processes.run("kill", process).await.map(drop)
    }

    /// Starts what was stopped, or what has crashed.
    pub(crate) async fn start(&mut self, process: &str) -> anyhow::Result<()> {
        self.revert(Undo::Process("start", process.to_owned())).await
    }

    /// Waits until one of a service's processes with an armed crash has ended, and returns its name.
    pub(crate) async fn crashed(&mut self, service: Service) -> anyhow::Result<String> {
        for _ in 0..100 {
            for process in processes_of(service) {
                let is_armed = self.undos.notes(&Undo::Process("start", process.clone()));
                if is_armed && self.processes.run("status", &process).await?.contains("stopped") {
                    self.claim(&format!("{process} has crashed"), true);
                    return Ok(process);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("{} has not crashed", service.0);
    }

    /// Whether a process runs; a second replica usually does not.
    async fn runs(&self, process: &str) -> bool {
        self.processes.run("status", process).await.is_ok_and(|status| status.contains("running"))
    }

    pub(crate) async fn freeze(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Process("thaw", process.to_owned()));
        self.processes.run("freeze", process).await.map(drop)
    }

    pub(crate) async fn thaw(&mut self, process: &str) -> anyhow::Result<()> {
        self.revert(Undo::Process("thaw", process.to_owned())).await
    }

    pub(crate) async fn restart_with(&mut self, process: &str, settings: Settings<'_>) -> anyhow::Result<()> {
        let shown: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.note(&format!("{process} is restarted with {}", shown.join(" ")));
        // A running second replica gets the same settings.
        let replica = format!("{process}-2");
        let replica = self.runs(&replica).await.then_some(replica);
        for process in replica.iter().map(String::as_str).chain([process]) {
            self.undos.note(Undo::Process("restart", process.to_owned()));
            self.processes.run_with("restart", process, settings).await?;
        }
        Ok(())
    }

    /// Orders must not time out during the pauses between steps.
    pub(crate) async fn extend_deadlines_for_pauses(&mut self) -> anyhow::Result<()> {
        if self.pause.is_on() {
            self.restart_with("order", &[("SAGA_DEADLINE", "1h"), ("COMPENSATION_DEADLINE", "1h")]).await?;
        }
        Ok(())
    }

    pub(crate) async fn restart(&mut self, process: &str) -> anyhow::Result<()> {
        self.note(&format!("{process} is restarted with its usual settings"));
        for undo in [process.to_owned(), format!("{process}-2")].map(|process| Undo::Process("restart", process)) {
            if self.undos.notes(&undo) {
                self.revert(undo).await?;
            }
        }
        Ok(())
    }

    /// Starts or restarts the second replica of a service, and returns the suite as reached through it.
    pub(crate) async fn start_replica(&mut self, service: Service) -> anyhow::Result<Suite> {
        let replica = format!("{}-2", service.0);
        self.undos.note(Undo::Process("stop", replica.clone()));
        self.processes.run("stop", &replica).await?;
        self.processes.run("start", &replica).await?;
        let url = self.processes.run("url", &replica).await?;
        self.record.name_server(&url, &replica);
        Ok(self.suite.at(service, &url))
    }

    pub(crate) async fn stop_replica(&mut self, service: Service) -> anyhow::Result<()> {
        self.revert(Undo::Process("stop", format!("{}-2", service.0))).await
    }

    /// Arms a fault in a service, and claims that each of its replicas holds it.
    pub(crate) async fn arm(&mut self, service: Service, fault: FaultSpec) -> anyhow::Result<ArmedFault> {
        self.undos.note(Undo::Disarm(service));
        if fault.kind == "crash" {
            // Either replica may crash.
            for process in processes_of(service) {
                if self.runs(&process).await {
                    self.undos.note(Undo::Process("start", process));
                }
            }
            self.processes.let_crash(service.0).await?;
        }
        let fault = FaultSpec { expires_in_seconds: self.expiry(), ..fault };
        let id = self.home.arm(service, &fault).await?.id;
        let held = async || Ok(self.home.armed_fault(service, id).await?.filter(|armed| armed.missing.is_empty()));
        let claim = format!("{}: {} at {}, until it is disarmed, in every replica", service.0, fault.kind, fault.point);
        // A replica that has just died counts as missing for some seconds.
        let armed = self.claim_soon(&claim, held).await?;
        self.note(&format!("armed in {}", armed.replicas.join(", ")));
        Ok(armed)
    }

    pub(crate) async fn disarm(&mut self, service: Service) -> anyhow::Result<()> {
        self.revert(Undo::Disarm(service)).await
    }

    pub(crate) async fn arm_gateway(&mut self, faults: GatewayFaults) -> anyhow::Result<()> {
        self.undos.note(Undo::DisarmGateway);
        let faults = GatewayFaults { expires_in_seconds: self.expiry(), ..faults };
        Ok(self.suite.arm_gateway(&faults).await?)
    }

    pub(crate) async fn disarm_gateway(&mut self) -> anyhow::Result<()> {
        self.revert(Undo::DisarmGateway).await
    }

    /// Notes that dead letters are about to appear; remaining ones are replayed or discarded at the end.
    pub(crate) fn expect_dead_letters(&mut self, service: Service) {
        self.undos.note(Undo::ResolveDeadLetters(service));
    }

    pub(crate) async fn resolve_dead_letters(&mut self, service: Service) -> anyhow::Result<()> {
        self.revert(Undo::ResolveDeadLetters(service)).await
    }

    pub(crate) async fn pause_consumer(&mut self, service: Service, step: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::ResumeConsumer(service, step.to_owned()));
        Ok(self.suite.pause_consumer(service, step).await?)
    }

    pub(crate) async fn resume_consumer(&mut self, service: Service, step: &str) -> anyhow::Result<()> {
        self.revert(Undo::ResumeConsumer(service, step.to_owned())).await
    }

    /// Undoes all faults that are still active; each failure is a failed claim.
    pub(crate) async fn clean_up(&mut self) {
        self.suite = self.home.clone();
        for undo in self.undos.take() {
            match undo.perform(&self.home, &self.processes).await {
                Ok(()) => self.note(&format!("cleaned up: {undo}")),
                Err(error) => self.claim(&format!("cleaned up: {undo}: {error:#}"), false),
            }
        }
        for service in SERVICES {
            if let Err(error) = self.close_breakers(service).await {
                self.claim(&format!("cleaned up: the breakers of {}: {error:#}", service.0), false);
            }
        }
        self.end_annotation().await;
    }

    /// Closes the breakers at once, because the faults are gone.
    async fn close_breakers(&self, service: Service) -> anyhow::Result<()> {
        let breakers = self.home.breakers(service).await?.items;
        let steps = breakers.iter().filter(|breaker| !breaker.is_closed()).map(|breaker| &breaker.step);
        for step in steps.collect::<BTreeSet<_>>() {
            self.home.reset_breaker(service, step).await?;
            self.note(&format!("cleaned up: the breaker of {step} is closed"));
        }
        Ok(())
    }

    async fn revert(&mut self, undo: Undo) -> anyhow::Result<()> {
        undo.perform(&self.home, &self.processes).await?;
        self.undos.done(&undo);
        Ok(())
    }

    fn expiry(&self) -> u32 {
        let expiry = if self.pause.is_on() { EXPIRY_WITH_PAUSES } else { EXPIRY };
        u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)
    }
}

fn processes_of(service: Service) -> [String; 2] {
    [service.0.to_owned(), format!("{}-2", service.0)]
}
