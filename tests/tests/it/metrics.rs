//! The metrics: each event is counted once, by the replica that handled it; gauges about shared tables are exposed by one
//! replica; and METRICS.md lists what a running suite exposes.

mod both_kinds;
mod document;
mod exposed;
mod retention;
mod sampled;
mod scenario;

use crate::prelude::*;

/// A name, labels, and the sum over all jobs.
type Expected<'e> = (&'e str, &'e [(&'e str, &'e str)], f64);

/// What a suite exposes, by the name of the job.
struct Shown(Vec<(&'static str, Scrape)>);

impl Shown {
    async fn by(participants: &Participants) -> anyhow::Result<Shown> {
        let mut shown = Vec::new();
        for replica in participants.all() {
            shown.push((replica.service.0, Scrape::of(&replica.client).await?));
        }
        Ok(Shown(shown))
    }

    async fn add(&mut self, job: &'static str, client: &Client) -> Test {
        self.0.push((job, Scrape::of(client).await?));
        Ok(())
    }

    /// The sum over all jobs.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
        let values: Vec<f64> = self.0.iter().filter_map(|(_, scrape)| scrape.sum(name, labels)).collect();
        ensure!(!values.is_empty(), "no job exposes {name} {labels:?}");
        Ok(values.iter().sum())
    }

    /// The sum of one job.
    fn of(&self, job: &str, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
        let (_, scrape) = self.0.iter().find(|(j, _)| *j == job).with_context(|| format!("no {job}"))?;
        scrape.sum(name, labels).with_context(|| format!("{job} does not show {name} {labels:?}"))
    }

    fn expect(&self, expected: &[Expected]) -> Test {
        for (name, labels, value) in expected {
            let found = self.sum(name, labels)?;
            ensure!((found - value).abs() < f64::EPSILON, "{name} {labels:?} is {found} instead of {value}");
        }
        Ok(())
    }
}
