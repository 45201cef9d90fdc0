//! Waiting for Enter between steps, for whoever gives a talk.

use std::{
    io::{BufRead, stdin},
    sync::Arc,
};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// How fast scenarios go.
#[derive(Debug, Clone)]
pub(super) enum Pace {
    /// As fast as the suite allows.
    Unhindered,
    /// Each step waits for a line, until there are no more.
    Lines(Arc<Mutex<UnboundedReceiver<()>>>),
}

impl Pace {
    /// Each step waits for Enter. To be called once, because there is one standard input.
    pub(super) fn of_enter() -> Self {
        let (sender, lines) = unbounded_channel();
        // A thread, because a read that has begun cannot be given up, and must not hold up the end of the program.
        std::thread::spawn(move || {
            for _ in stdin().lock().lines().map_while(Result::ok) {
                if sender.send(()).is_err() {
                    break;
                }
            }
        });
        Pace::Lines(Arc::new(Mutex::new(lines)))
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self, Pace::Lines(_))
    }

    pub(super) async fn wait(&self) {
        if let Pace::Lines(lines) = self {
            println!("   [Enter]");
            lines.lock().await.recv().await;
        }
    }
}
