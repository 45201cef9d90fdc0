//! Waiting for Enter between steps, for whoever gives a talk.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc::UnboundedReceiver};

use super::starter::Starter;

/// How fast scenarios go.
#[derive(Debug, Clone)]
pub(super) enum Pace {
    /// As fast as the suite allows.
    Unhindered,
    /// Each step waits for a line, until there are no more.
    Lines(Arc<Mutex<UnboundedReceiver<String>>>),
    /// Each step waits until the starter says so, who reads the lines.
    Starter(Starter),
}

impl Pace {
    pub(super) fn of_lines(lines: UnboundedReceiver<String>) -> Self {
        Pace::Lines(Arc::new(Mutex::new(lines)))
    }

    pub(super) fn is_paused(&self) -> bool {
        !matches!(self, Pace::Unhindered)
    }

    pub(super) async fn wait(&self) {
        if !self.is_paused() {
            return;
        }
        println!("   [Enter]");
        match self {
            Pace::Unhindered => {}
            Pace::Lines(lines) => drop(lines.lock().await.recv().await),
            // One that has gone is noticed by the scenario when it matters.
            Pace::Starter(starter) => drop(starter.ask("pause").await),
        }
    }
}
