//! Two replicas of each service. All orders are placed at the first one of order.

use super::{by_turns, ratio};
use crate::{
    figure::Figure,
    stage::{Stage, services},
};

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let second: Vec<String> = services().iter().map(|service| format!("{service}-2")).collect();
    let second: Vec<&str> = second.iter().map(String::as_str).collect();
    let measured = by_turns(stage.rounds(3), ["one replica", "two replicas"], async |variant| {
        stage.service(if variant == 0 { "stop" } else { "start" }, &second, &[]).await?;
        Ok(stage.saturate(stage.time(3, 2), stage.time(15, 4), &[]).await?.ended_per_second)
    });
    let [one, two] = &measured.await?;
    stage.service("stop", &second, &[]).await?;
    Ok(vec![
        Figure::median_of("sagas, one replica each", one, "1/s"),
        Figure::median_of("sagas, two replicas each", two, "1/s"),
        ratio("two / one", two, one),
    ])
}
