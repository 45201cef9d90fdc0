//! What can be asked for on the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use crate::{
    bug::{self, Bug},
    report::{BugReport, Report},
    trial,
};

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
}

/// Runs what was asked for. `Ok(false)`: a mistake went unnoticed, or something else was.
///
/// # Errors
/// When the experiment itself could not be carried out.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    if cli.bugs == ["list"] {
        bug::ALL.iter().for_each(|bug| println!("{:28} {}", bug.name, bug.breaks));
        return Ok(true);
    }
    let mut report = Report::default();
    for bug in cli.chosen()? {
        let mistaken = trial::hold(bug, true, &cli.programs, &cli.reports).await;
        let sound = match cli.without_control {
            true => None,
            false => Some(trial::hold(bug, false, &cli.programs, &cli.reports).await),
        };
        let bug = BugReport::new(bug, mistaken, sound);
        println!("{bug}");
        report.bugs.push(bug);
    }
    let path = cli.reports.join("planted.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&report)?)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    println!("report: {}", path.display());
    print!("{report}");
    Ok(report.passed())
}

impl Cli {
    fn chosen(&self) -> anyhow::Result<Vec<&'static Bug>> {
        if self.bugs.is_empty() {
            return Ok(bug::ALL.iter().collect());
        }
        let named = |name: &String| bug::named(name).with_context(|| format!("there is no planted bug {name}"));
        self.bugs.iter().map(named).collect()
    }
}
