//! The process of a run: how it is started, heard, answered and ended. The keeper follows one after the other, and does not leave
//! one behind when the console ends.

use std::{
    io,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use bootstrap::CancellationToken;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::{Known, Request, State, lock};
use crate::{audit::Stores, suite::Addresses, watch::now};

/// How long a run may take to undo what it did when the console ends; then it is killed.
const LAST_LIMIT: Duration = Duration::from_secs(30);
/// How long a run may take to read an answer, and its last output may take to arrive.
const PIPE_LIMIT: Duration = Duration::from_secs(1);

/// The programs that runs are: the suite's scripts, or this program itself.
pub(crate) struct Programs {
    scripts: Option<PathBuf>,
    /// What this program was started with; scripts find that themselves.
    access: Vec<(String, String)>,
}

impl Programs {
    pub(super) fn new(scripts: Option<PathBuf>, stores: &Stores, addresses: &Addresses) -> Programs {
        Programs { scripts, access: [stores.environment(), addresses.environment()].concat() }
    }

    pub(super) fn has_scripts(&self) -> bool {
        self.scripts.is_some()
    }

    /// The program of this name, to be called with the other arguments.
    pub(super) fn command(&self, arguments: &[String]) -> io::Result<Command> {
        let mut command = match (&self.scripts, arguments) {
            (Some(scripts), [name, rest @ ..]) => {
                let mut command = Command::new(scripts.join(name));
                command.args(rest).env("SUITE", "local");
                // A script gives each program its own.
                for inherited in ["LISTEN", "DATABASE_URL", "NATS_URL", "NATS_USER", "NATS_PASSWORD"] {
                    command.env_remove(inherited);
                }
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(arguments).envs(self.access.iter().cloned());
                command
            }
        };
        // A process group of its own: Ctrl-C in the console's terminal reaches the console, which ends the run in order.
        command.process_group(0).stdin(Stdio::piped());
        Ok(command)
    }
}

/// Follows the processes of all runs.
pub(crate) struct Keeper {
    known: Arc<Mutex<Known>>,
    requests: mpsc::Receiver<Request>,
}

impl Keeper {
    pub(super) fn new(known: Arc<Mutex<Known>>, requests: mpsc::Receiver<Request>) -> Keeper {
        Keeper { known, requests }
    }

    /// Returns after `stop`, when no run is left.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(request)) = stop.run_until_cancelled(self.requests.recv()).await {
            // The others are for a run that has ended meanwhile.
            if let Request::Begin(id, command) = request {
                let exit_code = match start(command) {
                    Ok((child, output)) => self.follow(id, child, output, &stop).await,
                    Err(error) => {
                        self.note(id, &format!("it could not be started: {error}"));
                        None
                    }
                };
                self.ended(id, exit_code);
            }
        }
    }

    /// Returns the exit code, if it ended with one.
    async fn follow(
        &mut self,
        id: u64,
        mut child: Child,
        mut output: pipe::Receiver,
        stop: &CancellationToken,
    ) -> Option<i32> {
        let mut stdin = child.stdin.take();
        let (mut buffer, mut is_open) = (vec![0; 8_192], true);
        let mut kill_at: Option<Instant> = None;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                read = output.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(length) => self.heard(id, buffer.get(..length).unwrap_or_default()),
                },
                Some(request) = self.requests.recv() => match request {
                    Request::Answer(of, text) if of == id => self.answer(id, &mut stdin, &text).await,
                    Request::Stop(of) if of == id => signal(&child, "TERM", "").await,
                    _ => {}
                },
                () = stop.cancelled(), if kill_at.is_none() => {
                    signal(&child, "TERM", "").await;
                    kill_at = Some(Instant::now() + LAST_LIMIT);
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    tracing::warn!(run = id, limit = ?LAST_LIMIT, "a run did not end, killing it");
                    signal(&child, "KILL", "-").await;
                    kill_at = Some(Instant::now() + LAST_LIMIT);
                }
            }
        };
        // What it started may hold its output open.
        let rest = async {
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                self.heard(id, buffer.get(..length).unwrap_or_default());
            }
        };
        let _ = timeout(PIPE_LIMIT, rest).await;
        status.ok().and_then(|status| status.code())
    }

    async fn answer(&self, id: u64, stdin: &mut Option<ChildStdin>, text: &str) {
        let Some(pipe) = stdin else { return self.note(id, "it reads no answer any more") };
        let answer = format!("{text}\n");
        match timeout(PIPE_LIMIT, pipe.write_all(answer.as_bytes())).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                *stdin = None;
                self.note(id, "it reads no answer any more");
            }
            Err(_) => self.note(id, "it has not read the answer"),
        }
    }

    fn heard(&self, id: u64, bytes: &[u8]) {
        if let Some(run) = lock(&self.known).find(id) {
            run.output.push(bytes);
        }
    }

    fn note(&self, id: u64, note: &str) {
        if let Some(run) = lock(&self.known).find(id) {
            run.output.note(note);
        }
    }

    fn ended(&self, id: u64, exit_code: Option<i32>) {
        if let Some(run) = lock(&self.known).find(id) {
            let is_stopped = run.acts.iter().any(|act| act.what == "stopped");
            run.state = if is_stopped { State::Stopped } else { State::Ended };
            (run.exit_code, run.ended_at) = (exit_code, Some(now()));
            tracing::info!(run = id, title = run.title, exit_code, "a run has ended");
        }
    }
}

/// With one pipe for both its outputs, so that their lines stay in order.
fn start(mut command: Command) -> io::Result<(Child, pipe::Receiver)> {
    let (output, written) = io::pipe()?;
    let output = pipe::Receiver::from_owned_fd(output.into())?;
    command.stdout(written.try_clone()?).stderr(written);
    // The command holds the pipe's other end. It is dropped here: otherwise the output would never end.
    Ok((command.spawn()?, output))
}

/// To the process, or with `group` "-" to all of its group. It has not been waited for, so its id is no other process's.
async fn signal(child: &Child, name: &str, group: &str) {
    let Some(id) = child.id() else { return };
    let arguments = ["-c", "kill -s \"$0\" -- \"$1\"", name, &format!("{group}{id}")];
    if let Err(error) = Command::new("sh").args(arguments).stderr(Stdio::null()).status().await {
        tracing::warn!(%error, "a run could not be signalled");
    }
}
