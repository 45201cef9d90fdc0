//! All orders are for the same few products, so each batch of reservations waits for the previous one.

use super::{by_turns, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let by_turns =
        by_turns(suite.rounds(6), ["of twenty products", "of the same ten", "of the same two"], async |variant| {
            let products: &[&str] = [&[][..], &["--products", "10"], &["--products", "2"]][variant];
            suite.a_turn(products).await
        });
    let (measured, mut figures) = by_turns.await?;
    figures.push(ratio("the same ten / twenty", &measured[1], &measured[0]).at_least(0.95));
    figures.push(ratio("the same two / twenty", &measured[2], &measured[0]).at_least(0.8));
    Ok(figures)
}
