//! Waiting for Enter between steps, for live demonstrations.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc::UnboundedReceiver};

use super::host_script::HostScript;

/// What happens before each step.
#[derive(Debug, Clone)]
pub(super) enum StepPause {
    /// No pause.
    Off,
    /// Each step waits for a line of input, until the input ends.
    Lines(Arc<Mutex<UnboundedReceiver<String>>>),
    /// Each step waits for the host script, which reads the terminal.
    HostScript(HostScript),
}

impl StepPause {
    pub(super) fn of_lines(lines: UnboundedReceiver<String>) -> Self {
        StepPause::Lines(Arc::new(Mutex::new(lines)))
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self, StepPause::Off)
    }

    pub(super) async fn wait(&self) {
        if !self.is_on() {
            return;
        }
        println!("   [Enter]");
        match self {
            StepPause::Off => {}
            StepPause::Lines(lines) => drop(lines.lock().await.recv().await),
            // If the script has ended, the scenario fails at its next request.
            StepPause::HostScript(host) => drop(host.request("pause").await),
        }
    }
}
