//! Whether orders are accepted. While order's events do not get out, a new order could only time out: it is refused at once,
//! with 503, so that what was accepted before, and cancellations, are all that waits. Nor is one accepted when a stream is
//! almost full: the rest is for how the orders in it end.

use std::time::Duration;

use bootstrap::{Problem, Readiness};
use messaging::{housekeeping::every, outbox};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio_util::sync::CancellationToken;

use crate::App;

/// How often the outbox is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After how many seconds a customer may try again.
const RETRY_AFTER: u32 = 10;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intake {
    shedding: Gauge,
    shed: Counter,
}

impl Intake {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let intake = Intake::default();
        let help = "1 while this replica accepts no orders, because its events do not get out";
        registry.register("orders_shedding", help, intake.shedding.clone());
        registry.register("orders_shed", "Orders refused because events do not get out", intake.shed.clone());
        intake
    }

    /// # Errors
    /// 503 while no orders are accepted.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        if self.shedding.get() == 0 {
            return Ok(());
        }
        self.shed.inc();
        let detail =
            "No orders are accepted just now, because nothing would come of them. Nothing was placed; try again.";
        Err(Problem::unavailable(detail, RETRY_AFTER))
    }
}

/// Looks again and again whether something keeps orders out, until `stop`.
pub(crate) async fn watch(app: App, readiness: Readiness, stop: CancellationToken) {
    let flag = readiness.register("placement");
    flag.ok();
    every(LOOK_EVERY, &stop, || async {
        match obstacle(&app).await {
            Ok(Some(obstacle)) => {
                app.intake.shedding.set(1);
                flag.failing(format!("no orders are accepted: {obstacle}"));
            }
            Ok(None) => {
                app.intake.shedding.set(0);
                flag.ok();
            }
            // Placing an order needs the database, too.
            Err(error) => tracing::debug!(%error, "the outbox could not be looked at"),
        }
    })
    .await;
}

async fn obstacle(app: &App) -> Result<Option<String>, sqlx::Error> {
    let oldest = outbox::oldest_waiting(&app.participant.pools.work).await?;
    if let Some(age) = oldest.filter(|age| *age > app.config.placement_outbox_age) {
        let age = humantime::format_duration(Duration::from_secs(age.as_secs()));
        return Ok(Some(format!("an event has waited for {age} to be published")));
    }
    for service in contracts::SERVICES {
        if app.participant.bus.fill_of(service).await.is_some_and(|stream| stream.is_scarce()) {
            let why = format!("the stream of {service} is almost full, and the rest of it is for cancellations");
            return Ok(Some(why));
        }
    }
    Ok(None)
}
