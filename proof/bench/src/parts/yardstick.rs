//! The suite compared with the same row changes in hand-written SQL, by turns on the same server.

use super::{by_turns, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let time = suite.time(15, 5);
    let names = ["the suite", "pgbench one event at a time", "pgbench with a call for each"];
    let by_turns = by_turns(suite.rounds(5), names, async |variant| match variant {
        0 => Ok(suite.saturate(suite.time(3, 2), time, &[]).await?.ended_per_second),
        variant => suite.yardstick(time, variant == 2).await,
    });
    let (measured, mut figures) = by_turns.await?;
    figures.push(ratio("suite / pgbench", &measured[0], &measured[1]).at_least(3.5));
    figures.push(ratio("suite / pgbench with a call for each", &measured[0], &measured[2]));
    Ok(figures)
}
