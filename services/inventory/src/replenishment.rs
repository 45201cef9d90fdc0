//! Replenishment of stock: on request, or automatically when a product runs low. One replica at a time
//! checks the stock, and each supply publishes an event, `StockReplenished`.
//!
//! A product runs low when it is ACTIVE and has fewer available units than the reorder point, although at least as
//! many were supplied in total. So a product that was created with five units stays scarce, as a limited edition
//! should and as demonstrations of scarcity need.

use bootstrap::Problem;
use contracts::catalogue::StockReplenished;
use messaging::{Context, PublishError, UnitOfWork, lease::hold, periodic::every};
use tokio_util::sync::CancellationToken;

use crate::{
    App, ReplenishmentArgs,
    domain::{self, StockedProduct, SupplyOverflow},
    store,
};

/// How many products one round replenishes; the next round takes the others.
const BATCH: i64 = 100;

/// The reason why nothing was supplied.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    #[error(transparent)]
    Overflow(#[from] SupplyOverflow),
    #[error("the supply could not be written")]
    Database(#[from] sqlx::Error),
    #[error("the supply could not be published")]
    Publish(#[from] PublishError),
}

impl From<SupplyError> for Problem {
    fn from(error: SupplyError) -> Self {
        match error {
            SupplyError::Overflow(overflow) => Problem::invalid("/quantity", overflow.to_string()),
            SupplyError::Database(error) => error.into(),
            SupplyError::Publish(error) => Problem::internal(&error),
        }
    }
}

pub(crate) async fn run(app: App, stop: CancellationToken) {
    every(app.config.replenishment.every, &stop, || async {
        match replenish_what_runs_low(&app).await {
            Ok(0) => {}
            Ok(products) => tracing::info!(products, "replenished what ran low"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "replenishment failed; retried in the next round"
                );
            }
        }
    })
    .await;
}

/// One round; returns how many products were replenished, 0 when another replica has the lease.
pub async fn replenish_what_runs_low(app: &App) -> Result<usize, SupplyError> {
    let ReplenishmentArgs { point, quantity, every, .. } = app.config.replenishment;
    let mut work = app.participant.outbox.begin().await?;
    if !hold(work.conn(), "replenishment", &app.participant.holder, every * 2).await? {
        return Ok(0);
    }
    let low = store::lock_products_below(work.conn(), point, quantity, BATCH).await?;
    let supplied =
        supply(app, &mut work, &Context::background("replenishment"), &low, quantity, "below the reorder point")
            .await?;
    work.commit().await?;
    Ok(supplied.len())
}

/// Supplies each of these locked products with `quantity` more units, and publishes the events.
pub(crate) async fn supply(
    app: &App,
    work: &mut UnitOfWork,
    context: &Context,
    products: &[StockedProduct],
    quantity: i64,
    reason: &str,
) -> Result<Vec<StockedProduct>, SupplyError> {
    let supplied: Vec<StockedProduct> =
        products.iter().map(|item| domain::supply(item, quantity)).collect::<Result<_, _>>()?;
    let supplied = store::save_supply(work.conn(), &supplied).await?;
    let units = quantity.unsigned_abs().saturating_mul(supplied.len() as u64);
    let replenished = app.replenished.clone();
    work.after_commit(move |_| {
        replenished.inc_by(units);
    });
    for StockedProduct { product, stock, .. } in &supplied {
        let event = StockReplenished {
            sku: product.sku.clone(),
            quantity,
            available: stock.available,
            reason: reason.to_owned(),
        };
        work.publish_side_event(context, product.version, &event)?;
    }
    Ok(supplied)
}
