//! The operator's console. It uses only the suite's public interfaces: REST, a read-only database role and a read-only NATS user.
//! Every command returns whether it found a problem.

pub mod after_restore;
pub mod audit;
pub mod demo;
mod desk;
pub mod drill;
pub mod forward;
pub mod health;
pub mod journey;
pub mod load;
pub mod mcp;
pub mod operate;
mod operations;
mod runs;
pub mod samples;
pub mod suite;
pub mod watch;

use std::{fmt::Display, io::Write as _};

use anyhow::bail;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Audits, demonstrates and loads a running suite.
#[derive(Debug, Parser)]
#[command(name = "console", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks every invariant on one snapshot of the suite (exit code 0 clean, 1 violations, 2 could not audit)
    Audit(audit::AuditArgs),
    /// Lists what the database has forgotten after a restore to an earlier moment, and repairs it (exit code 0 done, 1 repairs
    /// are left, 2 could not read)
    AfterRestore(after_restore::AfterRestoreArgs),
    /// Exits with 0 when the URL answers 200, for container health checks
    Health(health::HealthArgs),
    /// Plays scenarios against the running suite: `list`, `all` or a number
    Demo(demo::DemoArgs),
    /// Hides a fault in the running suite, which the player finds and mends
    Drill(drill::DrillArgs),
    /// Forwards TCP connections to services by name, to one replica after the other
    Forward(forward::ForwardArgs),
    /// Places orders at a rate and checks that each one ends
    Load(load::LoadArgs),
    /// Serves the suite's operations as tools for an agent, over stdin and stdout (Model Context Protocol)
    Mcp(mcp::McpArgs),
    /// Carries out one operation of the table that agents and pages use, or lists them
    Operate(operate::OperateArgs),
    /// Creates sample products, and waits until order knows them
    Samples(samples::SamplesArgs),
}

/// Runs one command. `Ok(false)` means that it completed and found a problem.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    match cli.command {
        Command::Audit(args) if args.watch.watch => watch::command(&args).await,
        Command::Audit(args) => tokio::select! {
            audited = audit::command(&args) => audited,
            () = interrupted() => bail!("interrupted"),
        },
        Command::AfterRestore(args) => after_restore::command(&args).await,
        Command::Health(args) => health::command(&args).await,
        Command::Demo(args) => demo::command(&args).await,
        Command::Drill(args) => drill::command(&args).await,
        Command::Forward(args) => forward::command(&args).await,
        Command::Load(args) => load::command(&args).await,
        Command::Mcp(args) => mcp::command(&args).await,
        Command::Operate(args) => operate::command(&args).await,
        Command::Samples(args) => samples::command(&args).await,
    }
}

/// Prints this, even if its reader is gone, as `println!` cannot: what a scenario broke must still be undone.
fn say(what: impl Display) {
    let _ = writeln!(std::io::stdout(), "{what}");
}

/// 256 random bits, in hexadecimal.
#[expect(clippy::disallowed_methods, reason = "a secret must not be predictable")]
fn secret() -> String {
    let [high, low]: [u128; 2] = rand::random();
    format!("{high:032x}{low:032x}")
}

/// Returns at SIGINT, SIGTERM or SIGHUP. PID 1 of a container has no default action for these signals.
async fn interrupted() {
    let received = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = received(SignalKind::interrupt()) => {}
        () = received(SignalKind::terminate()) => {}
        () = received(SignalKind::hangup()) => {}
    }
}
