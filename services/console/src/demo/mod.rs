//! Scenarios that are played on the running suite. Each one checks its claims over REST, as any
//! client could, and ends with an audit and a verdict.

mod customer_cancel;
mod happy_path;
mod last_unit;
mod payment_refused;
mod payment_stopped;
mod rebuild_product_view;
mod services;
mod stage;

use std::{path::PathBuf, pin::Pin};

use anyhow::{Context, bail};
use services::Services;
use stage::Stage;

use crate::{
    audit::{self, Stores},
    suite::{Addresses, Suite},
};

/// `console demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// `list`, `all`, or the numbers of the scenarios to play
    #[arg(default_value = "list")]
    which: Vec<String>,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    stores: Stores,
    /// Starts and stops one service: called with `start NAME` and `stop NAME`
    #[arg(long, env = "SERVICE_COMMAND", default_value = "./scripts/service")]
    service_command: PathBuf,
}

struct Scenario {
    number: u8,
    name: &'static str,
    about: &'static str,
    play: for<'a> fn(&'a mut Stage) -> Play<'a>,
}

type Play<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: 1,
        name: "happy path",
        about: "an order is reserved, paid and confirmed",
        play: |stage| Box::pin(happy_path::play(stage)),
    },
    Scenario {
        number: 2,
        name: "customer's cancel",
        about: "an order is cancelled, confirmed or pending: stock and money go back",
        play: |stage| Box::pin(customer_cancel::play(stage)),
    },
    Scenario {
        number: 3,
        name: "rebuild the product view",
        about: "order rebuilds its own view of the catalogue from inventory's",
        play: |stage| Box::pin(rebuild_product_view::play(stage)),
    },
    Scenario {
        number: 4,
        name: "the last unit",
        about: "50 buyers want 5 units: exactly 5 get one",
        play: |stage| Box::pin(last_unit::play(stage)),
    },
    Scenario {
        number: 5,
        name: "payment refused",
        about: "the card is declined: the order is cancelled and the stock released",
        play: |stage| Box::pin(payment_refused::play(stage)),
    },
    Scenario {
        number: 6,
        name: "payment stopped",
        about: "payment is away until the deadline: the saga compensates and nobody is charged later",
        play: |stage| Box::pin(payment_stopped::play(stage)),
    },
];

/// Plays what was asked for; `Ok(false)` when a scenario failed.
pub async fn command(args: &DemoArgs) -> anyhow::Result<bool> {
    if args.which == ["list"] {
        for Scenario { number, name, about, .. } in SCENARIOS {
            println!("{number:>2}  {name:26} {about}");
        }
        return Ok(true);
    }
    let chosen = choose(&args.which)?;
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let mut verdicts = Vec::new();
    for scenario in chosen {
        let verdict = play(scenario, &suite, args).await?;
        println!("{verdict}\n");
        let interrupted = verdict.interrupted;
        verdicts.push(verdict);
        if interrupted {
            break;
        }
    }
    if verdicts.len() > 1 {
        println!("Summary");
        verdicts.iter().for_each(|verdict| println!("  {verdict}"));
    }
    Ok(verdicts.iter().all(|v| v.passed))
}

struct Verdict {
    scenario: &'static Scenario,
    passed: bool,
    interrupted: bool,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.passed { "PASS" } else { "FAIL" };
        write!(f, "{verdict} {} {}", self.scenario.number, self.scenario.name)
    }
}

fn choose(which: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
    if which == ["all"] {
        return Ok(SCENARIOS.iter().collect());
    }
    which
        .iter()
        .map(|text| {
            let number = text.parse::<u8>().ok();
            SCENARIOS
                .iter()
                .find(|scenario| Some(scenario.number) == number)
                .with_context(|| format!("there is no scenario {text:?}; `demo list` shows them all"))
        })
        .collect()
}

/// Plays one scenario and audits the suite. Whatever happens, stopped services run again at the end.
async fn play(scenario: &'static Scenario, suite: &Suite, args: &DemoArgs) -> anyhow::Result<Verdict> {
    println!("=== {} {}: {}", scenario.number, scenario.name, scenario.about);
    let not_ready = suite.still_not_ready().await;
    if !not_ready.is_empty() {
        bail!("the suite is not ready (./scripts/up starts it):\n  {}", not_ready.join("\n  "));
    }
    let mut stage = Stage::new(suite.clone(), Services::new(args.service_command.clone()));
    let (ended, interrupted) = tokio::select! {
        ended = play_and_audit(scenario, &mut stage, args) => (ended, false),
        () = interruption() => (Err(anyhow::anyhow!("interrupted")), true),
    };
    if let Err(error) = &ended {
        stage.claim(&format!("it comes to its end: {error:#}"), false);
    }
    stage.services.start_stopped().await?;
    Ok(Verdict { scenario, passed: stage.failed == 0, interrupted })
}

async fn play_and_audit(scenario: &Scenario, stage: &mut Stage, args: &DemoArgs) -> anyhow::Result<()> {
    if let Err(error) = (scenario.play)(stage).await {
        stage.claim(&format!("the scenario comes to its end: {error:#}"), false);
    }
    stage.services.start_stopped().await?;
    stage.step("The audit, when nothing is in flight any more");
    let options = audit::Options { settle: std::time::Duration::from_secs(30), ..Default::default() };
    let report = audit::audit(&args.stores, &args.addresses.gateway_url, &options).await?;
    stage.claim(&format!("all {} invariants hold", report.invariants.len()), report.clean);
    if !report.clean {
        print!("{report}");
    }
    Ok(())
}

/// Ctrl-C, or the polite request to end.
async fn interruption() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(which: &[&str]) -> anyhow::Result<Vec<u8>> {
        let which: Vec<String> = which.iter().map(|&w| w.to_owned()).collect();
        Ok(choose(&which)?.iter().map(|s| s.number).collect())
    }

    #[test]
    fn scenarios_are_chosen_by_number_or_all_at_once() {
        assert_eq!(numbers(&["4", "1"]).expect("known"), [4, 1]);
        let all = numbers(&["all"]).expect("known");
        assert_eq!(all, (1..=u8::try_from(SCENARIOS.len()).expect("few")).collect::<Vec<_>>());
        assert!(numbers(&["99"]).is_err() && numbers(&["one"]).is_err());
    }
}
