//! Tools that begin, answer and stop a run.

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::{Argument, own::parsed, tool};
use crate::{
    desk::Desk,
    operations::{Arguments, Refusal, Role, Who, given},
    runs::Kind,
};

/// Who may call them; scenarios and drills are for admins.
pub(super) const ROLE: Role = Role::Operator;

pub(super) struct Running {
    pub(super) name: &'static str,
    about: &'static str,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Begin,
    Answer,
    Stop,
}

pub(super) static TOOLS: [Running; 3] = [
    Running {
        name: "run",
        about: "Begins a run, if none is running: a scenario, which breaks something, checks its claims and undoes it; an audit, which \
            first waits up to 30 s for what is in flight; or a drill, which breaks something, tells what is seen of it, and reads an \
            answer. Answers at once: `inspect_run` follows it. Scenarios and drills are for admins.",
        what: What::Begin,
    },
    Running { name: "answer_run", about: "Sends one line to the run, such as a drill's answer.", what: What::Answer },
    Running { name: "stop_run", about: "Lets the run undo what it did, and end.", what: What::Stop },
];

pub(super) fn find(name: &str) -> Option<&'static Running> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl Running {
    pub(super) fn arguments(&self) -> Vec<Argument> {
        let id = || Argument { required: true, ..Argument::number("id", "The run's id") };
        let mut all = match self.what {
            What::Begin => vec![
                Argument { one_of: &Kind::NAMES, ..Argument::text("kind", "What to run", true) },
                Argument::number(
                    "argument",
                    "A scenario's number, of which a wrong one lists all; a drill's seed, if any",
                ),
            ],
            What::Answer => vec![id(), Argument::text("text", "The line, at most 500 characters", true)],
            What::Stop => vec![id()],
        };
        all.push(Argument::text("reason", "Why, in a line; it is recorded", true));
        all
    }

    pub(super) fn tool(&self) -> Tool {
        // A scenario may delete the broker's data.
        let hints = ToolAnnotations::new().read_only(false).destructive(matches!(self.what, What::Begin));
        let hints = hints.idempotent(matches!(self.what, What::Stop)).open_world(false);
        tool(self.name, self.about, &self.arguments(), hints)
    }

    pub(super) fn perform(&self, desk: &Desk, who: &Who, arguments: &Arguments) -> Result<Value, Refusal> {
        if who.role < ROLE {
            return Err(Refusal::Role(self.name, ROLE));
        }
        let of = |name| given(arguments, name).unwrap_or_default();
        let id = parsed(arguments, "id")?.unwrap_or_default();
        let id = match self.what {
            What::Begin => desk.runs.begin(who, of("kind"), given(arguments, "argument"), of("reason"))?,
            What::Answer => desk.runs.answer(who, id, of("text"), of("reason")).map(|()| id)?,
            What::Stop => desk.runs.stop(who, id, of("reason")).map(|()| id)?,
        };
        Ok(json!({ "id": id }))
    }
}
