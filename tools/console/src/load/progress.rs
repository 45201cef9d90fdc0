//! The progress of a load, on one line of the terminal that is overwritten; nothing if stderr is no terminal.

use std::{
    io::{IsTerminal, Write, stderr},
    time::Duration,
};

use tokio::time::Instant;

const EVERY: Duration = Duration::from_millis(500);
const WIDTH: usize = 30;

#[derive(Debug)]
pub(super) struct Progress {
    /// When it was shown, and how many orders were placed by then.
    shown: Option<(Instant, u64)>,
    began: Instant,
    expected: Option<u64>,
    time: Option<Duration>,
}

impl Progress {
    pub(super) fn begin(expected: Option<u64>, time: Option<Duration>) -> Self {
        let began = Instant::now();
        let shown = stderr().is_terminal().then_some((began, 0));
        Progress { shown, began, expected, time }
    }

    /// `busy` orders are being placed or polled.
    pub(super) fn show(&mut self, placed: u64, busy: usize) {
        let Some((at, placed_then)) = self.shown else { return };
        let since = at.elapsed();
        if since < EVERY {
            return;
        }
        let rate = (placed - placed_then) as f64 / since.as_secs_f64();
        self.shown = Some((Instant::now(), placed));
        let done = match (self.expected, self.time) {
            (Some(expected), _) => Some(placed as f64 / expected as f64),
            (None, Some(time)) => Some(self.began.elapsed().as_secs_f64() / time.as_secs_f64()),
            (None, None) => None,
        };
        eprint!("\r\x1b[K{}{placed} placed, {rate:.0}/s, {busy} in progress", done.map(bar).unwrap_or_default());
        let _ = stderr().flush();
    }

    pub(super) fn end(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

fn bar(done: f64) -> String {
    let full = (done.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("[{}{}] ", "#".repeat(full), " ".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_share_done_up_to_full() {
        assert_eq!(bar(0.5).matches('#').count(), WIDTH / 2);
        assert_eq!(bar(1.7).len(), bar(0.0).len());
    }
}
