//! `model`: explores the states of the saga within bounds, and prints the results as a table and optionally as JSON. Exit code 1:
//! a property does not hold, or too few states were visited.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Parser;
use model::{
    Bounds, Saga,
    check::{Explored, Limits, Report, check, explore},
    twin::{self, Twin},
};
use serde_json::json;

#[derive(Debug, Parser)]
#[command(about = "Checks the whole saga, with its faults, against a model of everything around it")]
struct Arguments {
    /// The least number of different states to visit within one of the bounds
    #[arg(long, default_value_t = 1_000_000)]
    states: usize,
    /// The time limit of each bound, in seconds; an incomplete run proves nothing
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only the small bounds
    #[arg(long)]
    quick: bool,
    /// Only these bounds, as ORDERS,UNITS,FAULTS,DRIVES,REPLICAS,DETECTORS
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    bounds: Option<Vec<u8>>,
    /// Also write the reports to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let bounds = match &arguments.bounds {
        Some(numbers) => {
            vec![Bounds::of(numbers).context("six numbers: orders, units, faults, drives, replicas, detectors")?]
        }
        None if arguments.quick => Bounds::QUICK.to_vec(),
        None => Bounds::FULL.to_vec(),
    };
    let limits =
        Limits { threads: arguments.threads, time: Some(Duration::from_secs(arguments.seconds)), ..Limits::default() };
    println!("{}", Report::HEADER);
    let mut reports = Vec::new();
    for bounds in bounds {
        let report = check(Saga::new(bounds), limits);
        println!("{report}");
        reports.push(report);
    }
    let twin_faults = if arguments.quick { 2 } else { 4 };
    let twin = Twin::new(twin_faults, 2, twin::Guards::ALL).context("the table of the twin lacks a step")?;
    let twin = explore(twin, limits, |action| format!("{action:?}"));
    println!("\nThe orchestrated twin, with {twin_faults} faults:\n\n{}", Explored::HEADER);
    println!("{twin}");
    let runs = || reports.iter().map(|report| &report.explored).chain([&twin]);
    let states = runs().map(|run| run.unique_states).max().unwrap_or(0);
    let seconds: f64 = runs().map(|run| run.elapsed.as_secs_f64()).sum();
    let wanted = if arguments.quick { 0 } else { arguments.states };
    let proven = states >= wanted && runs().all(Explored::is_proven);
    let verdict = if proven { "proven" } else { "NOT PROVEN" };
    println!("{states} states within the widest bounds, all bounds in {seconds:.1} s: {verdict}");
    if let Some(file) = arguments.json {
        let runs: Vec<_> = reports.iter().map(Report::to_json).collect();
        let whole = json!({"layer": "L0 model check", "proven": proven, "unique_states": states, "seconds": seconds,
            "wanted_states": wanted, "runs": runs, "twin": twin.to_json()});
        reports::write_json(&whole, &file)?;
    }
    Ok(if proven { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
