//! All orders are for the same two products, so each batch of reservations waits for the previous one.

use super::{by_turns, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let by_turns = by_turns(suite.rounds(5), ["of twenty products", "of the same two"], async |variant| {
        let products: &[&str] = if variant == 0 { &[] } else { &["--products", "2"] };
        Ok(suite.saturate(suite.time(3, 2), suite.time(12, 4), products).await?.ended_per_second)
    });
    let (measured, mut figures) = by_turns.await?;
    figures.push(ratio("the same two / twenty", &measured[1], &measured[0]).at_least(0.8));
    Ok(figures)
}
