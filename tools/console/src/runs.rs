//! Runs: scenarios, audits that settle, and drills, begun from a page or by an agent. Each is a process of its own, one at a time,
//! because two could not tell their faults apart. Who began, answered and stopped it, and why, is kept with its output while the
//! console runs.

mod output;
mod process;

use std::{
    collections::VecDeque,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::mpsc;

use self::output::Output;
pub(crate) use self::process::{Keeper, Programs};
use crate::{
    audit::Stores,
    demo,
    operations::{Refusal, Role, Who},
    suite::Addresses,
    watch::now,
};

/// How many runs are kept; the oldest is forgotten.
const KEPT: usize = 20;
/// How often a run is answered at most.
const MAX_ANSWERS: usize = 100;
/// How many requests wait for the keeper at most.
const MAX_WAITING: usize = 16;

/// What can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Scenario,
    Audit,
    Drill,
}

impl Kind {
    pub(crate) const NAMES: [&str; 3] = ["scenario", "audit", "drill"];

    fn named(name: &str) -> Result<Kind, Refusal> {
        match name {
            "scenario" => Ok(Kind::Scenario),
            "audit" => Ok(Kind::Audit),
            "drill" => Ok(Kind::Drill),
            _ => Err(Refusal::Argument(format!("kind is one of {}", Kind::NAMES.join(", ")))),
        }
    }

    /// Scenarios and drills break things, as `arm_fault` does.
    pub(crate) fn role(self) -> Role {
        if self == Kind::Audit { Role::Operator } else { Role::Admin }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Running,
    /// By itself.
    Ended,
    /// After it was asked to.
    Stopped,
}

/// Something that was done to a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Act {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) why: String,
}

/// A run and its record.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) title: String,
    pub(crate) state: State,
    /// 0: passed, clean, solved. None while it runs, and when a signal ended it.
    pub(crate) exit_code: Option<i32>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) ended_at: Option<OffsetDateTime>,
    pub(crate) acts: Vec<Act>,
    #[serde(flatten)]
    pub(crate) output: Output,
}

impl Run {
    pub(crate) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    fn note(&mut self, who: &Who, what: String, why: &str) {
        tracing::info!(run = self.id, title = self.title, actor = who.actor, what, why, "a run");
        self.acts.push(Act { at: now(), who: who.actor.clone(), what, why: why.to_owned() });
    }
}

#[derive(Default)]
struct Known {
    /// Latest last.
    runs: VecDeque<Run>,
    begun: u64,
}

impl Known {
    fn find(&mut self, id: u64) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.id == id)
    }

    fn running(&mut self, id: u64) -> Result<&mut Run, Refusal> {
        let run = self.find(id).ok_or_else(|| Refusal::Argument(format!("there is no run {id}")))?;
        if run.is_running() { Ok(run) } else { Err(Refusal::Argument(format!("run {id} has ended"))) }
    }
}

/// What the keeper is asked to do with the run of this id.
enum Request {
    Begin(u64, tokio::process::Command),
    Answer(u64, String),
    Stop(u64),
}

/// The console's runs. Clones share them.
#[derive(Clone)]
pub(crate) struct Runs {
    known: Arc<Mutex<Known>>,
    keeper: mpsc::Sender<Request>,
    programs: Arc<Programs>,
}

/// Without its programs, which know passwords.
impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runs")
    }
}

impl Runs {
    /// The runs, and their keeper, which has to run. Without `scripts` the console cannot start and stop the suite's processes.
    pub(crate) fn new(scripts: Option<PathBuf>, stores: &Stores, addresses: &Addresses) -> (Runs, Keeper) {
        let (keeper, requests) = mpsc::channel(MAX_WAITING);
        let known = Arc::<Mutex<Known>>::default();
        let programs = Arc::new(Programs::new(scripts, stores, addresses));
        (Runs { known: known.clone(), keeper, programs }, Keeper::new(known, requests))
    }

    /// Whether it starts and stops the suite's processes, as drills and some scenarios do.
    pub(crate) fn has_scripts(&self) -> bool {
        self.programs.has_scripts()
    }

    /// The scenarios that can be played: their numbers and titles.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = (u8, String)> {
        let all = self.has_scripts();
        demo::scenarios().filter(move |scenario| all || !scenario.needs_scripts).map(|of| (of.number, of.title))
    }

    /// All that are kept, latest first.
    pub(crate) fn list(&self) -> Vec<Run> {
        lock(&self.known).runs.iter().rev().cloned().collect()
    }

    pub(crate) fn find(&self, id: u64) -> Option<Run> {
        lock(&self.known).find(id).cloned()
    }

    /// A run, the latest if none is named, and which there are.
    pub(crate) fn as_json(&self, id: Option<u64>) -> Result<Value, Refusal> {
        let runs = self.list();
        let run = match id {
            None => runs.first(),
            Some(id) => {
                let found = runs.iter().find(|run| run.id == id);
                Some(found.ok_or_else(|| Refusal::Argument(format!("there is no run {id}")))?)
            }
        };
        let all: Vec<_> =
            runs.iter().map(|run| json!({"id": run.id, "title": run.title, "state": run.state})).collect();
        Ok(json!({ "run": run, "runs": all }))
    }

    /// Begins a run, and returns its id. `argument` is a scenario's number, or a drill's seed.
    ///
    /// # Errors
    /// When the caller may not, another one runs, or there is no such run.
    pub(crate) fn begin(&self, who: &Who, kind: &str, argument: Option<&str>, why: &str) -> Result<u64, Refusal> {
        let kind = Kind::named(kind)?;
        if who.role < kind.role() {
            return Err(Refusal::Role("a scenario or a drill", kind.role()));
        }
        let (why, argument) = (line("a reason", why)?, argument.map(str::trim).filter(|text| !text.is_empty()));
        let (title, arguments) = self.described(kind, argument)?;
        let command = self.programs.command(&arguments);
        let command = command.map_err(|error| Refusal::Argument(format!("this console cannot start it: {error}")))?;
        let mut known = lock(&self.known);
        if let Some(other) = known.runs.iter().find(|run| run.is_running()) {
            return Err(Refusal::Argument(format!("run {} ({}) has not ended: one at a time", other.id, other.title)));
        }
        known.begun += 1;
        let id = known.begun;
        self.ask(Request::Begin(id, command))?;
        let (state, exit_code, ended_at) = (State::Running, None, None);
        let mut run = Run { id, kind, title, state, exit_code, ended_at, acts: Vec::new(), output: Output::default() };
        run.note(who, "begun".to_owned(), why);
        if known.runs.len() == KEPT {
            known.runs.pop_front();
        }
        known.runs.push_back(run);
        Ok(id)
    }

    /// Its title, and what its program is called with.
    fn described(&self, kind: Kind, argument: Option<&str>) -> Result<(String, Vec<String>), Refusal> {
        let refused = |why: String| Err(Refusal::Argument(why));
        match (kind, argument) {
            (Kind::Audit, None) => {
                Ok(("Audit that settles".to_owned(), ["audit", "--settle", "30s"].map(str::to_owned).into()))
            }
            (Kind::Audit, Some(_)) => refused("an audit has no argument".to_owned()),
            (Kind::Scenario, argument) => {
                let number = argument.and_then(|text| text.parse().ok());
                match self.scenarios().find(|(of, _)| Some(*of) == number) {
                    Some((number, title)) => {
                        Ok((format!("Scenario {title}"), vec!["demo".to_owned(), number.to_string()]))
                    }
                    None => {
                        let all: Vec<_> = self.scenarios().map(|(_, title)| title).collect();
                        refused(format!("argument is the number of a scenario: {}", all.join("; ")))
                    }
                }
            }
            (Kind::Drill, _) if !self.has_scripts() => refused(NO_DRILL.to_owned()),
            (Kind::Drill, None) => Ok(("Drill".to_owned(), vec!["drill".to_owned()])),
            (Kind::Drill, Some(seed)) => match seed.parse::<u64>() {
                Ok(seed) => {
                    let arguments = ["drill".to_owned(), "--seed".to_owned(), seed.to_string()];
                    Ok((format!("Drill with seed {seed}"), arguments.into()))
                }
                Err(_) => refused("argument is a drill's seed, a number".to_owned()),
            },
        }
    }

    /// Sends a line to a run that reads one.
    ///
    /// # Errors
    /// When the caller may not, or it has ended.
    pub(crate) fn answer(&self, who: &Who, id: u64, text: &str, why: &str) -> Result<(), Refusal> {
        if who.role < Role::Operator {
            return Err(Refusal::Role("an answer", Role::Operator));
        }
        let (text, why) = (line("an answer", text)?, line("a reason", why)?);
        let mut known = lock(&self.known);
        let run = known.running(id)?;
        if run.acts.len() > MAX_ANSWERS {
            return Err(Refusal::Argument(format!("run {id} was answered {MAX_ANSWERS} times")));
        }
        self.ask(Request::Answer(id, text.to_owned()))?;
        run.note(who, format!("answered: {text}"), why);
        Ok(())
    }

    /// Asks a run to undo what it did, and to end.
    ///
    /// # Errors
    /// When the caller may not, or it has ended.
    pub(crate) fn stop(&self, who: &Who, id: u64, why: &str) -> Result<(), Refusal> {
        if who.role < Role::Operator {
            return Err(Refusal::Role("a stop", Role::Operator));
        }
        let why = line("a reason", why)?;
        let mut known = lock(&self.known);
        let run = known.running(id)?;
        self.ask(Request::Stop(id))?;
        run.note(who, "stopped".to_owned(), why);
        Ok(())
    }

    fn ask(&self, request: Request) -> Result<(), Refusal> {
        let asked = self.keeper.try_send(request);
        asked.map_err(|_| Refusal::Argument("the console is stopping, or its run does not react".to_owned()))
    }
}

/// Why a console without scripts plays no drill.
pub(crate) const NO_DRILL: &str = "A drill starts and stops the suite's processes, which this console cannot: only one that \
    ./scripts/up started can.";

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line<'a>(what: &str, text: &'a str) -> Result<&'a str, Refusal> {
    let text = text.trim();
    let fits = (1..=500).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits { Ok(text) } else { Err(Refusal::Argument(format!("{what} is a line of 1 to 500 characters"))) }
}
