//! Scenarios that are played on the running suite. Each one checks its claims over REST, as any
//! client could, ends with an audit and a verdict, and leaves nothing broken behind.

mod counter_proof;
mod footprint;
mod pace;
mod preflight;
mod processes;
mod record;
mod report;
mod run;
mod scenarios;
mod stage;
mod starter;
mod surroundings;
mod timeline;
mod undo;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use counter_proof::Mechanism;
use footprint::Footprint;
use pace::Pace;
use processes::Processes;
use scenarios::{SCENARIOS, Scenario};
use starter::Starter;

use crate::{
    audit::Stores,
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
    /// Confirms that the suite belongs to nobody, and may be damaged
    #[arg(long, env = "THROW_AWAY_SUITE", hide = true)]
    throw_away: bool,
    /// Where the evidence goes, a Markdown file a run
    #[arg(long, value_name = "DIR", env = "DEMO_REPORTS", default_value = ".run/reports")]
    report: PathBuf,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    stores: Stores,
    /// Starts and stops one process: called with `start NAME`, `stop NAME` and so on. `-` asks whoever started this
    /// console, on the standard output, and reads the answers from the standard input
    #[arg(long, env = "SERVICE_COMMAND", default_value = "./scripts/service")]
    service_command: PathBuf,
    /// The broker's password of the user `inventory`, for the scenario in which it publishes what nobody understands
    #[arg(long, env = "INVENTORY_NATS_PASSWORD", default_value = "", hide_env_values = true)]
    publisher_password: String,
    /// Which sources the suite was built from, for the reports
    #[arg(long, env = "SUITE_REVISION", default_value = "unknown revision", hide = true)]
    revision: String,
}

/// Plays what was asked for; `Ok(false)` when a scenario failed.
pub async fn command(args: &DemoArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let means = Means::of(args);
    if let Some(mechanism) = args.without {
        if !args.throw_away {
            bail!("a counter-proof damages the suite: ./scripts/demo --without starts one of its own for it");
        }
        return Ok(play_each(&[mechanism.scenario()], &suite, args, &means).await? == Outcome::Passed);
    }
    let which: Vec<&str> = args.which.iter().map(String::as_str).collect();
    match which[..] {
        ["list"] => {
            for Scenario { number, name, about, .. } in SCENARIOS {
                println!("{number:>2}  {name:26} {about}");
            }
            Ok(true)
        }
        ["mend"] => Ok(preflight::mend(&suite, &means.processes).await),
        ["all"] => play_all(&suite, args, &means).await,
        _ => Ok(play_each(&choose(&which)?, &suite, args, &means).await? == Outcome::Passed),
    }
}

/// What scenarios need besides the suite: somebody who moves its processes, and who says when to go on.
#[derive(Debug, Clone)]
struct Means {
    processes: Processes,
    pace: Pace,
}

impl Means {
    /// To be called once, because there is one standard input.
    fn of(args: &DemoArgs) -> Self {
        if args.service_command != Path::new("-") {
            let pace = if args.pause { Pace::of_lines(starter::lines_of_input()) } else { Pace::Unhindered };
            return Means { processes: Processes::Script(args.service_command.clone()), pace };
        }
        let starter = Starter::new();
        let pace = if args.pause { Pace::Starter(starter.clone()) } else { Pace::Unhindered };
        Means { processes: Processes::Starter(starter), pace }
    }

    fn unhindered(&self) -> Self {
        Means { pace: Pace::Unhindered, ..self.clone() }
    }
}

/// All scenarios, and whether the suite is then as light as before.
async fn play_all(suite: &Suite, args: &DemoArgs, means: &Means) -> anyhow::Result<bool> {
    let before = Footprint::of_fresh_services(suite, args, means).await?;
    let outcome = play_each(&SCENARIOS.iter().collect::<Vec<_>>(), suite, args, means).await?;
    if outcome == Outcome::Interrupted {
        return Ok(false);
    }
    Ok(before.compare(suite, args, means).await? && outcome == Outcome::Passed)
}

/// What the scenarios have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Interrupted,
}

async fn play_each(chosen: &[&Scenario], suite: &Suite, args: &DemoArgs, means: &Means) -> anyhow::Result<Outcome> {
    let mut verdicts = Vec::new();
    let mut refused = Ok(());
    for scenario in chosen {
        match run::play(scenario, suite, args, means).await {
            Ok(verdict) => {
                println!("{verdict}\n");
                verdicts.push(verdict);
            }
            Err(error) => refused = Err(error),
        }
        // What stands in the way of one stands in the way of the others, too.
        if refused.is_err() || verdicts.last().is_some_and(|verdict| verdict.interrupted) {
            break;
        }
    }
    if chosen.len() > 1 {
        println!("Summary");
        verdicts.iter().for_each(|verdict| println!("  {verdict}"));
    }
    refused?;
    Ok(match verdicts.iter().all(|verdict| verdict.passed) {
        _ if verdicts.iter().any(|verdict| verdict.interrupted) => Outcome::Interrupted,
        true => Outcome::Passed,
        false => Outcome::Failed,
    })
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
