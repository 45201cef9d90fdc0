//! The command line.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, ValueEnum};

use crate::{
    Settings,
    chaos::{self, Plan},
    nemesis::{self, Nemesis},
    report::{Demands, publish},
    restore, sweep,
};

/// Breaks a suite of its own on purpose, and checks that nothing is lost, doubled or stuck.
#[derive(Debug, Parser)]
#[command(name = "chaos", version)]
pub enum Cli {
    /// Crashes a process at every fault point: in every step, and at its 1st, 2nd and 10th pass
    Sweep(SweepArgs),
    /// Breaks everything at random while clients order
    Run(RunArgs),
    /// Restores a backup of the database while clients order, and follows the runbook
    Restore(RestoreArgs),
}

/// The programs to test, and the folder for reports.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The folder of the suite's programs, built with faults; the folder of this program by default
    #[arg(long, env = "PROGRAMS_DIR")]
    pub programs: Option<PathBuf>,
    /// The library libfaketime, needed to step clocks; their files are written beside it
    #[arg(long, env = "FAKETIME_LIBRARY")]
    pub clocks: Option<PathBuf>,
    /// The folder of reports and logs
    #[arg(long, env = "CHAOS_REPORTS", default_value = ".run/chaos")]
    pub reports: PathBuf,
    /// A setting of the suite's programs, as NAME=VALUE; may be repeated
    #[arg(long = "setting", env = "CHAOS_SETTINGS", value_delimiter = ' ', value_parser = parse_setting)]
    pub environment: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    place: Place,
    /// Only these fault points, separated by commas
    #[arg(long, value_delimiter = ',')]
    points: Vec<faults::FaultPoint>,
    /// At which pass of a point the process crashes
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    hits: Vec<u32>,
    /// Only crashes in these steps, separated by commas, at the points that know the step
    #[arg(long, value_delimiter = ',')]
    steps: Vec<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    place: Place,
    /// The seed of orders and faults; random, and printed, by default
    #[arg(long)]
    seed: Option<u64>,
    /// The length of the run, in minutes; the profile's by default
    #[arg(long)]
    minutes: Option<f64>,
    /// Only these nemeses, separated by commas; `list` lists them
    #[arg(long, value_delimiter = ',')]
    nemeses: Vec<String>,
    /// Orders a second; 40 keep two slow cores 90 % busy with all programs of this proof, and recoveries show the machine
    #[arg(long, default_value_t = 20)]
    rate: u32,
    #[arg(long, value_enum, default_value_t = Profile::Ci)]
    profile: Profile,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    place: Place,
    /// The seed of the orders; random, and printed, by default
    #[arg(long)]
    seed: Option<u64>,
    /// Orders a second
    #[arg(long, default_value_t = 40)]
    rate: u32,
    /// The seconds between backup and restore, whose orders are lost
    #[arg(long, default_value_t = 10)]
    forgets: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Every nemesis, and short deadlines; recovery times and minimum amounts are checked, too
    Ci,
    /// Outages of at most ten seconds, and production's deadlines: no valid order may be cancelled
    Production,
    /// Hours
    Soak,
}

/// Runs the command. `Ok(false)`: it found a violation.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    match cli {
        Cli::Sweep(args) => {
            let points = if args.points.is_empty() { faults::FaultPoint::ALL.to_vec() } else { args.points };
            let steps: Vec<&str> = args.steps.iter().map(String::as_str).collect();
            let selection = sweep::Selection { points: &points, hits: &args.hits, steps: &steps };
            let report = sweep::sweep(&args.place.settings(1)?, &selection).await?;
            publish(&report, &args.place.reports, "sweep.json")?;
            Ok(report.passed())
        }
        Cli::Run(args) if args.nemeses == ["list"] => {
            nemesis::ALL.iter().chain(nemesis::CLOCKS).for_each(|nemesis| println!("{}", nemesis.name));
            Ok(true)
        }
        Cli::Run(args) => {
            let plan = args.plan()?;
            println!("seed {}", plan.seed);
            let report = chaos::chaos(&args.place.settings(2)?, &plan).await?;
            publish(&report, &args.place.reports, &format!("chaos-{}.json", plan.seed))?;
            Ok(report.failures().is_empty())
        }
        Cli::Restore(args) => {
            let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
            println!("seed {seed}");
            let (before, after) = (Duration::from_secs(10), Duration::from_secs(args.forgets));
            let plan = restore::Plan { seed, rate: args.rate, before, after, settle: Duration::from_secs(120) };
            let report = restore::restore(&args.place.settings(2)?, &plan).await?;
            publish(&report, &args.place.reports, "restore.json")?;
            Ok(report.passed())
        }
    }
}

impl RunArgs {
    fn plan(&self) -> anyhow::Result<Plan> {
        // The demands apply to complete runs only.
        let whole = self.minutes.is_none() && self.nemeses.is_empty();
        let nothing = Demands { most_cancelled_percent: 100.0, orders: 0, faults: 0, nemeses: 0, recovery: false };
        let all = Demands {
            most_cancelled_percent: 2.0,
            orders: 10_000,
            faults: 100,
            nemeses: nemesis::ALL.len(),
            recovery: true,
        };
        // Short deadlines, so that some pass within the run.
        let short = Some("20s");
        let (minutes, longest_phase, deadline, demands) = match self.profile {
            Profile::Ci if whole => (14.0, 30, short, all),
            Profile::Ci => (14.0, 30, short, nothing),
            Profile::Production => (8.0, 10, None, Demands { most_cancelled_percent: 0.0, ..nothing }),
            Profile::Soak => (120.0, 30, short, Demands { most_cancelled_percent: 2.0, ..nothing }),
        };
        Ok(Plan {
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
            length: Duration::from_secs_f64(60.0 * self.minutes.unwrap_or(minutes)),
            rate: self.rate,
            nemeses: self.nemeses()?,
            longest_phase: Duration::from_secs(longest_phase),
            deadline,
            settle: Duration::from_secs(150),
            demands,
        })
    }

    fn nemeses(&self) -> anyhow::Result<Vec<&'static Nemesis>> {
        if self.nemeses.is_empty() {
            return Ok(nemesis::ALL.iter().collect());
        }
        let named = |name: &String| nemesis::named(name).with_context(|| format!("there is no nemesis {name}"));
        self.nemeses.iter().map(named).collect()
    }
}

impl Place {
    /// The settings of the suite from these arguments.
    pub fn settings(&self, replicas: usize) -> anyhow::Result<Settings> {
        let own = std::env::current_exe()?;
        let programs = match &self.programs {
            Some(folder) => folder.clone(),
            None => own.parent().context("this program is in no folder")?.to_owned(),
        };
        let settings = Settings::new(programs, self.reports.join("logs"), replicas)?;
        Ok(Settings { clocks: self.clocks.clone(), environment: self.environment.clone(), ..settings })
    }
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
