//! Requests to the script that started the console, for what the console cannot do inside its container. A request is a line of
//! standard output, `<RS>NUMBER REQUEST`, its answer a line of standard input, `NUMBER ok TEXT` or `NUMBER failed TEXT`. All
//! other lines of the output are for people. Between steps, for live demonstrations, the console waits for Enter.

use std::{
    io::{BufRead, Write, stdin, stdout},
    sync::Arc,
};

use anyhow::{Context, bail};
use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

use crate::say;

/// ASCII's record separator: no other line begins with it.
const MARK: char = '\u{1e}';

#[derive(Debug, Clone)]
pub(super) struct HostScript(Arc<Mutex<Channel>>);

#[derive(Debug)]
struct Channel {
    requests: u64,
    answers: UnboundedReceiver<String>,
}

impl HostScript {
    /// Call this once: there is one standard input.
    pub(super) fn new() -> Self {
        HostScript::with_answers(lines_of_input())
    }

    fn with_answers(answers: UnboundedReceiver<String>) -> Self {
        HostScript(Arc::new(Mutex::new(Channel { requests: 0, answers })))
    }

    pub(super) async fn request(&self, request: &str) -> anyhow::Result<String> {
        self.request_on(stdout(), request).await
    }

    async fn request_on(&self, mut output: impl Write, request: &str) -> anyhow::Result<String> {
        let mut channel = self.0.lock().await;
        channel.requests += 1;
        let number = channel.requests;
        writeln!(output, "{MARK}{number} {request}").and_then(|()| output.flush()).context("cannot write a request")?;
        loop {
            let line = channel.answers.recv().await;
            let line = line.with_context(|| format!("{request}: the script that started this console has ended"))?;
            // The answer to an earlier request, which was cancelled, may come first.
            let Some(answer) = line.strip_prefix(&format!("{number} ")) else { continue };
            let (verdict, text) = answer.split_once(' ').unwrap_or((answer, ""));
            match verdict {
                "ok" => return Ok(text.trim().to_owned()),
                _ => bail!("{request} failed: {text}"),
            }
        }
    }
}

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
    /// Call this once: there is one standard input.
    pub(super) fn of_input() -> Self {
        StepPause::Lines(Arc::new(Mutex::new(lines_of_input())))
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self, StepPause::Off)
    }

    pub(super) async fn wait(&self) {
        if self.is_on() {
            say("   [Enter]");
        }
        match self {
            StepPause::Off => {}
            StepPause::Lines(lines) => drop(lines.lock().await.recv().await),
            // If the script has ended, the scenario fails at its next request.
            StepPause::HostScript(host) => drop(host.request("pause").await),
        }
    }
}

pub(crate) fn lines_of_input() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    // A thread, because a blocking read cannot be cancelled and must not delay the end of the program.
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exchange(answers: &[&str]) -> (String, Vec<anyhow::Result<String>>) {
        let (sender, lines) = unbounded_channel();
        answers.iter().for_each(|answer| sender.send((*answer).to_owned()).unwrap());
        drop(sender);
        let (host, mut output, mut received) = (HostScript::with_answers(lines), Vec::new(), Vec::new());
        for request in ["service stop nats", "pause"] {
            received.push(host.request_on(&mut output, request).await);
        }
        (String::from_utf8(output).unwrap(), received)
    }

    #[tokio::test]
    async fn requests_are_numbered_lines_with_a_mark() {
        let (output, received) = exchange(&["1 ok", "2 ok as you like"]).await;
        assert_eq!(output, "\u{1e}1 service stop nats\n\u{1e}2 pause\n");
        assert_eq!(received.into_iter().collect::<anyhow::Result<Vec<_>>>().unwrap(), ["", "as you like"]);
    }

    #[tokio::test]
    async fn an_answer_to_a_cancelled_request_is_skipped() {
        let (_, received) = exchange(&["", "0 ok late", "1 failed it hangs", "1 ok", "2 ok"]).await;
        assert_eq!(received[0].as_ref().unwrap_err().to_string(), "service stop nats failed: it hangs");
        assert_eq!(received[1].as_deref().unwrap(), "");
    }

    #[tokio::test]
    async fn without_the_host_script_a_request_fails() {
        let (_, received) = exchange(&["1 ok"]).await;
        assert!(received[1].as_ref().unwrap_err().to_string().contains("has ended"));
    }
}
