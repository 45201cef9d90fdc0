//! `provision` creates everything and ends; `provision keep` keeps running and restores what the broker loses, without access to
//! the database.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use messaging::topology::Topology;
use provision::{
    broker,
    config::{Command, Config},
    database, nats_conf,
};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let config = Config::parse();
    let outcome = match config.command {
        Some(Command::NatsConf { accounts }) => {
            print!("{}", if accounts { nats_conf::render_accounts() } else { nats_conf::render() });
            Ok(())
        }
        _ => run_until_stopped(&config).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("provision: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A signal ends `keep` with success; before everything is ready it is a failure.
async fn run_until_stopped(config: &Config) -> anyhow::Result<()> {
    config.log.start()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut stop = Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    let topology = config.broker.topology();
    let connection = tokio::select! {
        ready = provision(config, &topology) => ready?,
        () = &mut stop => bail!("stopped by a signal before everything was ready"),
    };
    tracing::info!("everything is ready");
    if config.command == Some(Command::Keep) {
        tokio::select! {
            () = broker::keep(&connection, &topology) => {}
            () = stop => tracing::info!("stopped by a signal"),
        }
    }
    Ok(())
}

async fn provision(config: &Config, topology: &Topology) -> anyhow::Result<broker::Connection> {
    if config.command.is_none() {
        let options = config.database.connect_options()?;
        database::provision(&options, &config.database_settings()?).await.context("the database is not ready")?;
    }
    let connection = broker::connect(&config.broker.access(), config.broker.nats_startup_limit).await;
    let connection = connection.context("the broker is not ready")?;
    if config.command == Some(Command::Renew) {
        broker::delete_streams(&connection.client).await.context("the streams cannot be recreated")?;
    }
    broker::provision(&connection.client, topology).await.context("the broker is not ready")?;
    Ok(connection)
}
