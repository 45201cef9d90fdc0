//! Whoever started the console, asked for what the console cannot do from inside its container. A question is a line of the
//! console's output, `<RS>NUMBER QUESTION`, its answer a line of its input, `NUMBER ok TEXT` or `NUMBER failed TEXT`. All
//! other lines of the output are for people.

use std::{
    io::{BufRead, Write, stdin, stdout},
    sync::Arc,
};

use anyhow::{Context, bail};
use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// ASCII's record separator: no line for people begins with it.
const MARK: char = '\u{1e}';

#[derive(Debug, Clone)]
pub(super) struct Starter(Arc<Mutex<Conversation>>);

#[derive(Debug)]
struct Conversation {
    asked: u64,
    answers: UnboundedReceiver<String>,
}

impl Starter {
    /// To be called once, because there is one standard input.
    pub(super) fn new() -> Self {
        Starter::hearing(lines_of_input())
    }

    fn hearing(answers: UnboundedReceiver<String>) -> Self {
        Starter(Arc::new(Mutex::new(Conversation { asked: 0, answers })))
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, question: &str) -> anyhow::Result<String> {
        self.ask_on(stdout(), question).await
    }

    async fn ask_on(&self, mut output: impl Write, question: &str) -> anyhow::Result<String> {
        let mut conversation = self.0.lock().await;
        conversation.asked += 1;
        let number = conversation.asked;
        writeln!(output, "{MARK}{number} {question}").and_then(|()| output.flush()).context("cannot ask")?;
        loop {
            let line = conversation.answers.recv().await;
            let line = line.with_context(|| format!("{question}: whoever started this console has gone"))?;
            // An earlier question may have been given up before it was answered.
            let Some(answer) = line.strip_prefix(&format!("{number} ")) else { continue };
            let (verdict, text) = answer.split_once(' ').unwrap_or((answer, ""));
            match verdict {
                "ok" => return Ok(text.trim().to_owned()),
                _ => bail!("{question} failed: {text}"),
            }
        }
    }
}

/// The lines of the standard input, until there are no more.
pub(super) fn lines_of_input() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    // A thread, because a read that has begun cannot be given up, and must not hold up the end of the program.
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

    async fn asked(answers: &[&str]) -> (String, Vec<anyhow::Result<String>>) {
        let (sender, lines) = unbounded_channel();
        answers.iter().for_each(|answer| sender.send((*answer).to_owned()).unwrap());
        drop(sender);
        let (starter, mut output, mut heard) = (Starter::hearing(lines), Vec::new(), Vec::new());
        for question in ["service stop nats", "pause"] {
            heard.push(starter.ask_on(&mut output, question).await);
        }
        (String::from_utf8(output).unwrap(), heard)
    }

    #[tokio::test]
    async fn questions_are_numbered_lines_with_a_mark() {
        let (output, heard) = asked(&["1 ok", "2 ok as you like"]).await;
        assert_eq!(output, "\u{1e}1 service stop nats\n\u{1e}2 pause\n");
        assert_eq!(heard.into_iter().collect::<anyhow::Result<Vec<_>>>().unwrap(), ["", "as you like"]);
    }

    #[tokio::test]
    async fn an_answer_to_a_question_given_up_is_not_taken_for_the_next_ones() {
        let (_, heard) = asked(&["", "0 ok late", "1 failed it hangs", "1 ok", "2 ok"]).await;
        assert_eq!(heard[0].as_ref().unwrap_err().to_string(), "service stop nats failed: it hangs");
        assert_eq!(heard[1].as_deref().unwrap(), "");
    }

    #[tokio::test]
    async fn without_a_starter_a_question_fails() {
        let (_, heard) = asked(&["1 ok"]).await;
        assert!(heard[1].as_ref().unwrap_err().to_string().contains("has gone"));
    }
}
