//! The suite against the same row changes written by hand, by turns on the same server.

use super::{by_turns, ratio};
use crate::{figure::Figure, stage::Stage};

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let time = stage.time(15, 5);
    let measured =
        by_turns(stage.rounds(5), ["suite", "pgbench", "pgbench, one call"], async |variant| match variant {
            0 => Ok(stage.saturate(stage.time(3, 2), time, &[]).await?.ended_per_second),
            variant => stage.yardstick(time, variant == 2).await,
        });
    let [suite, pgbench, one_call] = &measured.await?;
    Ok(vec![
        Figure::median_of("sagas, the suite", suite, "1/s"),
        Figure::median_of("sagas, pgbench one event at a time", pgbench, "1/s"),
        Figure::median_of("sagas, pgbench with a call for each", one_call, "1/s"),
        ratio("suite / pgbench", suite, pgbench).at_least(2.0),
        ratio("suite / pgbench with a call for each", suite, one_call),
    ])
}
