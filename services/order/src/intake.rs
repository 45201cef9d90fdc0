//! Load shedding. While order's events are not published, a new order could only time out, so it is refused at once with 503,
//! and only earlier orders and cancellations are pending. Orders are also refused while a stream is almost full: the rest of it
//! is reserved for the events that end the accepted orders; an orchestrated one also while its coordinator is behind.

use std::time::Duration;

use bootstrap::{Problem, Readiness};
use messaging::{outbox, periodic::every};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio_util::sync::CancellationToken;

use crate::{App, placement::Style};

/// How often the outbox is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The `Retry-After` of a refused order, in seconds.
const RETRY_AFTER: u32 = 10;

/// Whether orders are refused, as metrics. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intake {
    shedding: Gauge,
    shed: Counter,
}

impl Intake {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let intake = Intake::default();
        let help = "1 while this replica refuses orders, because events are not published";
        registry.register("orders_shedding", help, intake.shedding.clone());
        registry.register("orders_shed", "Orders refused because they could only time out", intake.shed.clone());
        intake
    }

    /// # Errors
    /// 503 while no orders are accepted.
    fn admit(&self, is_behind: bool) -> Result<(), Problem> {
        if self.shedding.get() == 0 && !is_behind {
            return Ok(());
        }
        let detail = "No new orders are accepted just now. This request has placed nothing; repeat it later, with its \
                      Idempotency-Key if it had one.";
        Err(Problem::unavailable(detail, RETRY_AFTER))
    }

    /// Counts a request that is answered with the 503 of [`App::admit`].
    pub(crate) fn count_refused(&self) {
        self.shed.inc();
    }
}

impl App {
    /// Whether a new order may be placed now. Counts nothing, because a transaction that is tried again asks again.
    ///
    /// # Errors
    /// 503 while no orders are accepted.
    pub(crate) fn admit(&self, style: Style) -> Result<(), Problem> {
        self.intake.admit(style == Style::Orchestrated && self.twin.is_behind())
    }
}

/// Checks periodically whether orders must be refused, until `stop`.
pub(crate) async fn watch(app: App, readiness: Readiness, stop: CancellationToken) {
    let flag = readiness.register("placement");
    flag.ok();
    every(CHECK_EVERY, &stop, || async {
        match reason_to_refuse(&app).await {
            Ok(Some(reason)) => {
                app.intake.shedding.set(1);
                flag.failing(format!("no orders are accepted: {reason}"));
            }
            Ok(None) => {
                app.intake.shedding.set(0);
                flag.ok();
            }
            // Without the database no order can be placed anyway.
            Err(error) => tracing::debug!(%error, "the outbox could not be checked"),
        }
    })
    .await;
}

async fn reason_to_refuse(app: &App) -> Result<Option<String>, sqlx::Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_order_is_counted_when_it_is_answered() {
        let intake = Intake::default();
        assert!(intake.admit(false).is_ok() && intake.admit(true).is_err());
        intake.shedding.set(1);
        assert!(intake.admit(false).is_err() && intake.admit(true).is_err());
        assert_eq!(intake.shed.get(), 0);
        intake.count_refused();
        assert_eq!(intake.shed.get(), 1);
    }
}
