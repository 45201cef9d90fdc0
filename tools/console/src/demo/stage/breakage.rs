//! Everything that a scenario can break. Each breakage is noted before it happens, so that it is taken back even when
//! the scenario is interrupted in the middle.

use std::{collections::BTreeSet, time::Duration};

use anyhow::bail;
use tokio::time::sleep;

use super::{PATIENCE, Stage};
use crate::{
    demo::{processes::Settings, undo::Undo},
    suite::{ArmedFault, FaultSpec, GatewayFaults, SERVICES, Service, Suite, SuiteError},
};

/// Longer than any scenario takes; then a fault is gone even if nobody can disarm it.
const EXPIRY: Duration = Duration::from_secs(120);
/// With pauses nobody knows how long a scenario takes.
const EXPIRY_WITH_PAUSES: Duration = Duration::from_secs(3_600);

impl Stage {
    /// Lets a process finish what it is doing, and end.
    pub(in crate::demo) async fn stop(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Start(process.to_owned()));
        self.processes.run("stop", process).await.map(drop)
    }

    /// Ends a process as a crash does.
    pub(in crate::demo) async fn kill(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Start(process.to_owned()));
        self.processes.run("kill", process).await.map(drop)
    }

    /// Starts what was stopped, or what has crashed.
    pub(in crate::demo) async fn start(&mut self, process: &str) -> anyhow::Result<()> {
        self.take_back(Undo::Start(process.to_owned())).await
    }

    /// Waits until one of a service's processes that was made to crash has done so; which one it was.
    pub(in crate::demo) async fn crashed(&mut self, service: Service) -> anyhow::Result<String> {
        for _ in 0..100 {
            for process in processes_of(service).into_iter().filter(|process| self.undos.notes_start_of(process)) {
                if self.processes.run("status", &process).await?.contains("stopped") {
                    self.claim(&format!("{process} has crashed"), true);
                    return Ok(process);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("{} was made to crash, and still runs", service.0);
    }

    /// Whether a process runs; a second replica mostly does not.
    async fn runs(&self, process: &str) -> bool {
        self.processes.run("status", process).await.is_ok_and(|status| status.contains("running"))
    }

    /// Stops a process in its tracks.
    pub(in crate::demo) async fn freeze(&mut self, process: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::Thaw(process.to_owned()));
        self.processes.run("freeze", process).await.map(drop)
    }

    pub(in crate::demo) async fn thaw(&mut self, process: &str) -> anyhow::Result<()> {
        self.take_back(Undo::Thaw(process.to_owned())).await
    }

    /// Starts a process again with other settings.
    pub(in crate::demo) async fn restart_with(&mut self, process: &str, settings: Settings<'_>) -> anyhow::Result<()> {
        // A second replica that is there is to be like the first.
        let replica = format!("{process}-2");
        let replica = if self.runs(&replica).await { Some(replica) } else { None };
        let told: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.note(&format!("{process} is started again with {}", told.join(" ")));
        for process in replica.iter().map(String::as_str).chain([process]) {
            self.undos.note(Undo::Restart(process.to_owned()));
            self.processes.run_with("restart", process, settings).await?;
        }
        Ok(())
    }

    /// When somebody talks between the steps, orders must not time out meanwhile.
    pub(in crate::demo) async fn take_time(&mut self) -> anyhow::Result<()> {
        if self.pace.is_paused() {
            self.restart_with("order", &[("SAGA_DEADLINE", "1h"), ("COMPENSATION_DEADLINE", "1h")]).await?;
        }
        Ok(())
    }

    /// Starts a process again with its usual settings.
    pub(in crate::demo) async fn restart(&mut self, process: &str) -> anyhow::Result<()> {
        self.note(&format!("{process} is started again with its usual settings"));
        for undo in [process.to_owned(), format!("{process}-2")].map(Undo::Restart) {
            if self.undos.notes(&undo) {
                self.take_back(undo).await?;
            }
        }
        Ok(())
    }

    /// Starts a second replica of a service, anew if there is one; the suite as it is seen through that one.
    pub(in crate::demo) async fn start_replica(&mut self, service: Service) -> anyhow::Result<Suite> {
        let replica = format!("{}-2", service.0);
        self.undos.note(Undo::Stop(replica.clone()));
        self.processes.run("stop", &replica).await?;
        self.processes.run("start", &replica).await?;
        let url = self.processes.run("url", &replica).await?;
        self.record.name_server(&url, &replica);
        Ok(self.suite.at(service, &url))
    }

    pub(in crate::demo) async fn stop_replica(&mut self, service: Service) -> anyhow::Result<()> {
        self.take_back(Undo::Stop(format!("{}-2", service.0))).await
    }

    /// Deletes the broker's data, as if its disk were new, while it is stopped.
    pub(in crate::demo) async fn wipe_broker(&mut self) -> anyhow::Result<()> {
        self.processes.run("wipe", "nats").await.map(drop)
    }

    /// Waits until every server is ready again.
    pub(in crate::demo) async fn all_ready(&self) -> anyhow::Result<()> {
        let not_ready = self.suite.still_not_ready().await;
        if !not_ready.is_empty() {
            bail!("{}", not_ready.join(", "));
        }
        Ok(())
    }

    /// Arms a fault in a service, and claims that each of its replicas holds it.
    pub(in crate::demo) async fn arm(&mut self, service: Service, fault: FaultSpec) -> anyhow::Result<ArmedFault> {
        self.undos.note(Undo::Disarm(service));
        if fault.kind == "crash" {
            // Whichever it hits.
            for process in processes_of(service) {
                if self.runs(&process).await {
                    self.undos.note(Undo::Start(process));
                }
            }
            self.processes.let_crash(service.0).await?;
        }
        let fault = FaultSpec { expires_in_seconds: self.expiry(), ..fault };
        let id = self.home.arm(service, &fault).await?.id;
        let held = async || Ok(self.home.armed_fault(service, id).await?.filter(|armed| armed.missing.is_empty()));
        let claim = format!("{}: {} at {}, until it is disarmed, in every replica", service.0, fault.kind, fault.point);
        // One that has just died is expected for some seconds more.
        let armed = self.claim_soon(&claim, PATIENCE, held).await?;
        self.note(&format!("armed in {}", armed.replicas.join(", ")));
        Ok(armed)
    }

    /// How often a fault that is still armed has hit.
    pub(in crate::demo) async fn hits(&self, service: Service, fault: &ArmedFault) -> Result<u64, SuiteError> {
        let armed = self.home.armed_fault(service, fault.id).await?;
        Ok(armed.map_or(0, |armed| armed.hits))
    }

    pub(in crate::demo) async fn disarm(&mut self, service: Service) -> anyhow::Result<()> {
        self.take_back(Undo::Disarm(service)).await
    }

    /// Lets the gateway go wrong.
    pub(in crate::demo) async fn break_gateway(&mut self, faults: GatewayFaults) -> anyhow::Result<()> {
        self.undos.note(Undo::DisarmGateway);
        let faults = GatewayFaults { expires_in_seconds: self.expiry(), ..faults };
        Ok(self.suite.arm_gateway(&faults).await?)
    }

    pub(in crate::demo) async fn mend_gateway(&mut self) -> anyhow::Result<()> {
        self.take_back(Undo::DisarmGateway).await
    }

    /// Notes that dead letters are about to appear; one that is left is replayed in the end, or given up.
    pub(in crate::demo) fn expect_dead_letters(&mut self, service: Service) {
        self.undos.note(Undo::SettleDeadLetters(service));
    }

    pub(in crate::demo) async fn no_dead_letter_left(&mut self, service: Service) -> anyhow::Result<()> {
        self.take_back(Undo::SettleDeadLetters(service)).await
    }

    /// Lets a service stop consuming for one of its steps.
    pub(in crate::demo) async fn pause_consumer(&mut self, service: Service, step: &str) -> anyhow::Result<()> {
        self.undos.note(Undo::ResumeConsumer(service, step.to_owned()));
        Ok(self.suite.pause_consumer(service, step).await?)
    }

    pub(in crate::demo) async fn resume_consumer(&mut self, service: Service, step: &str) -> anyhow::Result<()> {
        self.take_back(Undo::ResumeConsumer(service, step.to_owned())).await
    }

    /// Takes back everything that is still broken, whatever happens; what could not be taken back is a failed claim.
    pub(in crate::demo) async fn tidy_up(&mut self) {
        self.suite = self.home.clone();
        for undo in self.undos.take() {
            match undo.perform(&self.home, &self.processes).await {
                Ok(()) => self.note(&format!("tidied up: {undo}")),
                Err(error) => self.claim(&format!("tidied up: {undo}: {error:#}"), false),
            }
        }
        for service in SERVICES {
            if let Err(error) = self.close_breakers(service).await {
                self.claim(&format!("tidied up: the breakers of {}: {error:#}", service.0), false);
            }
        }
        self.end_annotation().await;
    }

    /// What was broken is mended, so nobody has to wait for a breaker to find out.
    async fn close_breakers(&self, service: Service) -> anyhow::Result<()> {
        let breakers = self.home.breakers(service).await?.map(|breakers| breakers.items).unwrap_or_default();
        let steps = breakers.iter().filter(|breaker| !breaker.is_closed()).map(|breaker| &breaker.step);
        for step in steps.collect::<BTreeSet<_>>() {
            self.home.reset_breaker(service, step).await?;
            self.note(&format!("tidied up: the breaker of {step} is closed"));
        }
        Ok(())
    }

    async fn take_back(&mut self, undo: Undo) -> anyhow::Result<()> {
        undo.perform(&self.home, &self.processes).await?;
        self.undos.done(&undo);
        Ok(())
    }

    fn expiry(&self) -> u32 {
        let expiry = if self.pace.is_paused() { EXPIRY_WITH_PAUSES } else { EXPIRY };
        u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)
    }
}

/// Those that a service may run as.
fn processes_of(service: Service) -> [String; 2] {
    [service.0.to_owned(), format!("{}-2", service.0)]
}
