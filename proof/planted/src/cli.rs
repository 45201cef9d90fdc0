//! What can be asked for on the command line.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use chaos::report::{publish, save};
use clap::Parser;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    bug::{self, Bug},
    report::{BugReport, Report},
    storm::{self, Storm},
    trial,
};

/// How many suites there are at a time: mostly they wait.
const AT_ONCE: usize = 3;

/// Makes one classic mistake after the other, and checks that each is noticed.
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
    /// Leave out the runs without the mistakes, which prove that the mistakes alone are what is noticed
    #[arg(long)]
    without_control: bool,
    /// Under chaos, before its judge, who does not look for them
    #[arg(long)]
    under_chaos: bool,
    /// Of that chaos
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs what was asked for. `Ok(false)`: a mistake went unnoticed, or something else was.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    if cli.bugs == ["list"] {
        bug::ALL.iter().for_each(|bug| println!("{:33} {}", bug.name, bug.breaks));
        return Ok(true);
    }
    if cli.under_chaos {
        return cli.storms().await;
    }
    let trials = cli.chosen()?.into_iter().map(async |bug| {
        let mistaken = trial::hold(bug, true, &cli.programs, &cli.reports).await;
        let sound = match cli.without_control {
            true => None,
            false => Some(trial::hold(bug, false, &cli.programs, &cli.reports).await),
        };
        BugReport::new(bug, mistaken, sound)
    });
    let trials = stream::iter(trials).buffered(AT_ONCE).inspect(|bug| println!("{bug}"));
    let report = Report { bugs: trials.collect().await };
    publish(&report, &cli.reports, "planted.json")?;
    Ok(report.passed())
}

impl Cli {
    async fn storms(&self) -> anyhow::Result<bool> {
        let (chosen, not_shown): (Vec<_>, Vec<_>) =
            self.chosen()?.into_iter().partition(|bug| !bug.shown_by.is_empty());
        for bug in &not_shown {
            println!("{:33} not tried: {}", bug.name, bug.not_shown);
        }
        ensure!(!chosen.is_empty(), "no nemesis shows any of these bugs");
        let with_mistakes = chosen.iter().map(|bug| (Some(*bug), std::slice::from_ref(bug)));
        let storms = with_mistakes.chain((!self.without_control).then_some((None, &chosen[..])));
        let storms = storms.map(|(bug, bugs)| storm::blow(bug, bugs, self.seed, &self.programs, &self.reports));
        let storms = stream::iter(storms).buffered(AT_ONCE).inspect_ok(|storm| println!("{storm}"));
        let storms: Vec<Storm> = storms.try_collect().await?;
        save(&storms, &self.reports, "planted-under-chaos.json")?;
        let caught = storms.iter().filter(|storm| storm.bug.is_some() && storm.as_it_should_be()).count();
        println!(
            "planted bugs under chaos: {caught} of {} caught; {} not tried, because no nemesis shows them",
            chosen.len(),
            not_shown.len()
        );
        Ok(storms.iter().all(Storm::as_it_should_be))
    }

    fn chosen(&self) -> anyhow::Result<Vec<&'static Bug>> {
        if self.bugs.is_empty() {
            return Ok(bug::ALL.iter().collect());
        }
        let named = |name: &String| bug::named(name).with_context(|| format!("there is no planted bug {name}"));
        self.bugs.iter().map(named).collect()
    }
}
