//! Whether a URL answers 200 within a time limit.

use std::time::Duration;

use anyhow::Context;

/// `console health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The URL to request, such as http://127.0.0.1:8081/health/ready
    url: String,
    /// How long to wait for the answer
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// `Ok(false)` for any other answer and for none.
pub async fn command(args: &HealthArgs) -> anyhow::Result<bool> {
    let client = reqwest::Client::builder().timeout(args.timeout).build().context("no HTTP client")?;
    match client.get(&args.url).send().await {
        Ok(answer) if answer.status() == 200 => Ok(true),
        Ok(answer) => {
            eprintln!("{} answers {}", args.url, answer.status());
            Ok(false)
        }
        Err(error) => {
            eprintln!("{} does not answer: {:#}", args.url, anyhow::Error::from(error));
            Ok(false)
        }
    }
}
