//! Two replicas of each service. All orders are placed at the first replica of order.

use super::{by_turns, ratio};
use crate::{
    figure::Figure,
    suite::{MeasuredSuite, services},
};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let second: Vec<String> = services().iter().map(|service| format!("{service}-2")).collect();
    let second: Vec<&str> = second.iter().map(String::as_str).collect();
    let by_turns = by_turns(suite.rounds(3), ["one replica each", "two replicas each"], async |variant| {
        suite.service(if variant == 0 { "stop" } else { "start" }, &second, &[]).await?;
        Ok(suite.saturate(suite.time(3, 2), suite.time(15, 4), &[]).await?.ended_per_second)
    });
    let (measured, mut figures) = by_turns.await?;
    suite.service("stop", &second, &[]).await?;
    figures.push(ratio("two / one", &measured[1], &measured[0]));
    Ok(figures)
}
