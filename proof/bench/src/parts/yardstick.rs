//! The suite compared with the same row changes in hand-written SQL, by turns on the same server.

use super::{by_turns, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let names = ["the suite", "pgbench one event at a time", "pgbench with a call for each"];
    let by_turns = by_turns(suite.rounds(9), names, async |variant| match variant {
        0 => suite.a_turn(&[]).await,
        variant => suite.yardstick(variant == 2).await,
    });
    let (measured, mut figures) = by_turns.await?;
    figures.push(ratio("suite / pgbench", &measured[0], &measured[1]).at_least(3.5));
    figures.push(ratio("suite / pgbench with a call for each", &measured[0], &measured[2]));
    Ok(figures)
}
