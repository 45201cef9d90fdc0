//! Scenarios that are played on the running suite. Each checks its claims over REST, ends with an audit and a verdict, and undoes
//! everything that it broke.

mod counter_proof;
mod endpoint;
mod footprint;
mod host_script;
mod preflight;
mod processes;
mod record;
mod report;
mod run;
mod scenario_run;
mod scenarios;
mod undo;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use counter_proof::Mechanism;
use footprint::Footprint;
pub(crate) use host_script::lines_of_input;
use host_script::{HostScript, StepPause};
use preflight::Need;
pub(crate) use preflight::broken;
use processes::Processes;
use run::Verdict;
use scenarios::{SCENARIOS, Scenario};
pub(crate) use undo::resolve_dead_letters;

use crate::{
    audit::Stores,
    say,
    suite::{Addresses, Suite},
};

/// `console demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// `list`, `all`, `mend`, or the numbers of the scenarios to play
    #[arg(default_value = "list")]
    which: Vec<String>,
    /// Wait for Enter before each step
    #[arg(long)]
    pause: bool,
    /// Plays the counter-proof on a suite that was started without this mechanism
    #[arg(long, value_enum)]
    without: Option<Mechanism>,
    /// Confirms that the suite is disposable and may be damaged
    #[arg(long, env = "THROW_AWAY_SUITE", hide = true)]
    throw_away: bool,
    /// The folder of the reports, one Markdown file a run
    #[arg(long, value_name = "DIR", env = "DEMO_REPORTS", default_value = ".run/reports")]
    report: PathBuf,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    stores: Stores,
    /// Starts and stops one process: called with `start NAME`, `stop NAME` and so on. `-` sends the requests to the script that
    /// started this console, on standard output, and reads the answers from standard input
    #[arg(long, env = "SERVICE_COMMAND", default_value = "./scripts/service")]
    service_command: PathBuf,
    /// The broker's password of the user `inventory`, for the scenario that publishes an undecodable event
    #[arg(long, env = "INVENTORY_NATS_PASSWORD", default_value = "", hide_env_values = true)]
    publisher_password: String,
    /// The revision that the suite was built from, for the reports
    #[arg(long, env = "SUITE_REVISION", default_value = "unknown revision", hide = true)]
    revision: String,
}

/// A scenario that can be played.
pub(crate) struct Playable {
    pub(crate) number: u8,
    pub(crate) title: String,
    /// It starts and stops processes, or uses a password that only scripts have.
    pub(crate) needs_scripts: bool,
}

pub(crate) fn scenarios() -> impl Iterator<Item = Playable> {
    SCENARIOS.iter().map(|scenario| Playable {
        number: scenario.number,
        title: scenario.title(),
        needs_scripts: scenario.needs.iter().any(|need| *need != Need::Faults),
    })
}

/// Plays the given scenarios; `Ok(false)` when one failed.
pub async fn command(args: &DemoArgs) -> anyhow::Result<bool> {
    let demo = Demo::new(args)?;
    if let Some(mechanism) = args.without {
        if !args.throw_away {
            bail!("a counter-proof damages the suite: ./scripts/demo --without starts one of its own for it");
        }
        return Ok(all_passed(&play_each(&[mechanism.scenario()], &demo).await?));
    }
    let which: Vec<&str> = args.which.iter().map(String::as_str).collect();
    match which[..] {
        ["list"] => {
            for Scenario { number, name, about, .. } in SCENARIOS {
                say(format_args!("{number:>2}  {name:26} {about}"));
            }
            Ok(true)
        }
        ["mend"] => Ok(preflight::mend(&demo.suite, &demo.processes).await),
        ["all"] => play_all(&demo).await,
        _ => Ok(all_passed(&play_each(&choose(&which)?, &demo).await?)),
    }
}

/// What all runs share: the suite, how they start and stop its processes, and how they pause between steps.
struct Demo<'a> {
    args: &'a DemoArgs,
    suite: Suite,
    processes: Processes,
    pause: StepPause,
}

impl<'a> Demo<'a> {
    /// Call this once: there is one standard input.
    fn new(args: &'a DemoArgs) -> anyhow::Result<Self> {
        let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
        let (processes, pause) = if args.service_command == Path::new("-") {
            let host = HostScript::new();
            (Processes::HostScript(host.clone()), args.pause.then_some(StepPause::HostScript(host)))
        } else {
            let lines = args.pause.then(StepPause::of_input);
            (Processes::Script(args.service_command.clone()), lines)
        };
        Ok(Demo { args, suite, processes, pause: pause.unwrap_or(StepPause::Off) })
    }
}

/// Plays all scenarios, and then compares memory and connections with those before.
async fn play_all(demo: &Demo<'_>) -> anyhow::Result<bool> {
    let before = Footprint::of_fresh_services(demo).await?;
    let verdicts = play_each(&SCENARIOS.iter().collect::<Vec<_>>(), demo).await?;
    if verdicts.iter().any(|verdict| verdict.interrupted) {
        return Ok(false);
    }
    Ok(before.compare(demo).await? && all_passed(&verdicts))
}

fn all_passed(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|verdict| verdict.passed && !verdict.interrupted)
}

async fn play_each(chosen: &[&Scenario], demo: &Demo<'_>) -> anyhow::Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    let mut refused = Ok(());
    for scenario in chosen {
        match run::play(scenario, demo).await {
            Ok(verdict) => {
                say(format_args!("{verdict}\n"));
                verdicts.push(verdict);
            }
            Err(error) => refused = Err(error),
        }
        // The same obstacle would stop the other scenarios.
        if refused.is_err() || verdicts.last().is_some_and(|verdict| verdict.interrupted) {
            break;
        }
    }
    if chosen.len() > 1 {
        say("Summary");
        verdicts.iter().for_each(|verdict| say(format_args!("  {verdict}")));
    }
    refused.map(|()| verdicts)
}

fn choose(which: &[&str]) -> anyhow::Result<Vec<&'static Scenario>> {
    let by_number = |text: &&str| {
        let number = text.parse::<u8>().ok();
        let found = SCENARIOS.iter().find(|scenario| Some(scenario.number) == number);
        found.with_context(|| format!("there is no scenario {text:?}; `demo list` shows them all"))
    };
    which.iter().map(by_number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_number() {
        let numbers = |which: &[&str]| choose(which).map(|s| s.iter().map(|s| s.number).collect::<Vec<_>>());
        assert_eq!(numbers(&["4", "1"]).expect("known"), [4, 1]);
        assert!(numbers(&["99"]).is_err() && numbers(&["one"]).is_err());
    }

    #[test]
    fn scenarios_are_numbered_from_one_without_a_gap() {
        let numbers: Vec<usize> = SCENARIOS.iter().map(|s| usize::from(s.number)).collect();
        assert_eq!(numbers, (1..=SCENARIOS.len()).collect::<Vec<_>>());
    }
}
