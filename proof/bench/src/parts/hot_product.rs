//! All orders want the same two products, so each batch of reservations waits for the one before.

use super::{by_turns, ratio};
use crate::{figure::Figure, stage::Stage};

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let measured = by_turns(stage.rounds(5), ["twenty products", "two products"], async |variant| {
        let products: &[&str] = if variant == 0 { &[] } else { &["--products", "2"] };
        Ok(stage.saturate(stage.time(3, 2), stage.time(12, 4), products).await?.ended_per_second)
    });
    let [spread, hot] = &measured.await?;
    Ok(vec![
        Figure::median_of("sagas, of twenty products", spread, "1/s"),
        Figure::median_of("sagas, of the same two", hot, "1/s"),
        ratio("the same two / twenty", hot, spread).at_least(0.8),
    ])
}
