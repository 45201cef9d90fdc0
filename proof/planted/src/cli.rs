//! The command line.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use chaos::report::{publish, save};
use clap::Parser;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    bug::{self, Bug},
    report::{BugReport, Report},
    trial,
    under_chaos::{self, ChaosTrial},
};

/// The number of concurrent suites, which mostly wait.
const AT_ONCE: usize = 3;

/// Makes one classic mistake after the other, and checks that each is detected.
#[derive(Debug, Parser)]
#[command(name = "planted", version)]
pub struct Cli {
    /// Only these, separated by commas; `list` lists them
    #[arg(long, value_delimiter = ',')]
    bugs: Vec<String>,
    /// The folder of the programs that can make the mistakes
    #[arg(long, env = "PLANTED_PROGRAMS_DIR")]
    programs: PathBuf,
    /// The folder of reports and logs
    #[arg(long, env = "CHAOS_REPORTS", default_value = ".run/chaos")]
    reports: PathBuf,
    /// Skip the control runs without the mistakes, which prove that nothing else is detected
    #[arg(long)]
    without_control: bool,
    /// In chaos runs, judged by their general verdict
    #[arg(long)]
    under_chaos: bool,
    /// The seed of the chaos runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the trials. `Ok(false)`: a mistake was not detected, or something else was.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    if cli.bugs == ["list"] {
        bug::ALL.iter().for_each(|bug| println!("{:33} {}", bug.name, bug.breaks));
        return Ok(true);
    }
    if cli.under_chaos {
        return cli.trials_under_chaos().await;
    }
    let trials = cli.chosen()?.into_iter().map(async |bug| {
        let mistaken = trial::run(bug, true, &cli.programs, &cli.reports).await;
        let sound = match cli.without_control {
            true => None,
            false => Some(trial::run(bug, false, &cli.programs, &cli.reports).await),
        };
        BugReport::new(bug, mistaken, sound)
    });
    let trials = stream::iter(trials).buffered(AT_ONCE).inspect(|bug| println!("{bug}"));
    let report = Report { bugs: trials.collect().await };
    publish(&report, &cli.reports, "planted.json")?;
    Ok(report.passed())
}

impl Cli {
    async fn trials_under_chaos(&self) -> anyhow::Result<bool> {
        let (chosen, not_shown): (Vec<_>, Vec<_>) =
            self.chosen()?.into_iter().partition(|bug| !bug.shown_by.is_empty());
        for bug in &not_shown {
            println!("{:33} not tried: {}", bug.name, bug.not_shown);
        }
        ensure!(!chosen.is_empty(), "no nemesis shows any of these bugs");
        let with_mistakes = chosen.iter().map(|bug| (Some(*bug), std::slice::from_ref(bug)));
        let trials = with_mistakes.chain((!self.without_control).then_some((None, &chosen[..])));
        let trials = trials.map(|(bug, bugs)| under_chaos::run(bug, bugs, self.seed, &self.programs, &self.reports));
        let trials = stream::iter(trials).buffered(AT_ONCE).inspect_ok(|trial| println!("{trial}"));
        let trials: Vec<ChaosTrial> = trials.try_collect().await?;
        save(&trials, &self.reports, "planted-under-chaos.json")?;
        let caught = trials.iter().filter(|trial| trial.bug.is_some() && trial.passed()).count();
        println!(
            "planted bugs under chaos: {caught} of {} caught; {} not tried, because no nemesis shows them",
            chosen.len(),
            not_shown.len()
        );
        Ok(trials.iter().all(ChaosTrial::passed))
    }

    fn chosen(&self) -> anyhow::Result<Vec<&'static Bug>> {
        if self.bugs.is_empty() {
            return Ok(bug::ALL.iter().collect());
        }
        let named = |name: &String| bug::named(name).with_context(|| format!("there is no planted bug {name}"));
        self.bugs.iter().map(named).collect()
    }
}
