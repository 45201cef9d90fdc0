//! What every scenario needs: numbered steps, claims that are checked aloud, a product of its own,
//! and patience.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, bail};
use uuid::Uuid;

use super::services::Services;
use crate::suite::{Money, NewOrder, NewProduct, Order, Payment, Product, Reservation, Saga, Suite, until};

/// How long a saga without trouble may take; far more than it needs.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Stage {
    pub(super) suite: Suite,
    pub(super) services: Services,
    /// How many claims did not hold.
    pub(super) failed: usize,
    steps: usize,
}

/// All that the three services say of one order whose saga has ended.
pub(super) struct Ended {
    pub(super) order: Order,
    pub(super) saga: Saga,
    pub(super) reservation: Option<Reservation>,
    pub(super) payment: Option<Payment>,
}

impl Stage {
    pub(super) fn new(suite: Suite, services: Services) -> Self {
        Stage { suite, services, failed: 0, steps: 0 }
    }

    /// Announces the next step.
    pub(super) fn step(&mut self, what: &str) {
        self.steps += 1;
        println!("{}. {what}", self.steps);
    }

    /// Tells something that is not checked.
    pub(super) fn note(&self, what: &str) {
        println!("     {what}");
    }

    /// Says whether a claim holds.
    pub(super) fn claim(&mut self, claim: &str, holds: bool) {
        if holds {
            println!("   ok      {claim}");
        } else {
            self.failed += 1;
            println!("   FAILED  {claim}");
        }
    }

    /// Claims that something is as expected, and says what it is when it is not.
    pub(super) fn claim_is<A: Debug + PartialEq<E>, E: Debug>(&mut self, claim: &str, actual: A, expected: E) {
        if actual == expected {
            self.claim(claim, true);
        } else {
            self.claim(&format!("{claim}: is {actual:?}, not {expected:?}"), false);
        }
    }

    /// Creates a product that no other order wants, and waits until order knows it.
    pub(super) async fn product(&mut self, units: i64, price: i64) -> anyhow::Result<String> {
        let id = Uuid::now_v7().simple().to_string().to_uppercase();
        // The last digits of a UUIDv7 are the random ones.
        let sku = format!("DEMO-{}", id.get(20..).unwrap_or(&id));
        let name = "Something for this scenario only".to_owned();
        self.suite
            .create_product(&NewProduct { sku: sku.clone(), name, price: Money::usd(price), initial_quantity: units })
            .await?;
        let known = until(PATIENCE, || self.suite.product_view(&sku)).await?;
        known.with_context(|| format!("order does not get to know the new product {sku}"))?;
        self.note(&format!("{sku}: {units} units at {price} US cents"));
        Ok(sku)
    }

    /// Places an order and does not wait for its end.
    pub(super) async fn place(&mut self, order: &NewOrder) -> anyhow::Result<Order> {
        let key = Uuid::now_v7().to_string();
        let (order, _) = self.suite.place_surely(order, &key, PATIENCE).await?;
        self.note(&format!("order {}", order.order_id));
        Ok(order)
    }

    /// What everybody says of an order when its saga has ended.
    pub(super) async fn ended(&mut self, order_id: Uuid) -> anyhow::Result<Ended> {
        self.ended_within(order_id, PATIENCE).await
    }

    pub(super) async fn ended_within(&mut self, order_id: Uuid, limit: Duration) -> anyhow::Result<Ended> {
        let Some(saga) = self.suite.ended_saga(order_id, limit).await? else {
            bail!("the saga of order {order_id} has not ended after {}", humantime::format_duration(limit));
        };
        Ok(Ended {
            order: self.suite.order(order_id).await?.context("the order is gone")?,
            saga,
            reservation: self.suite.reservation(order_id).await?,
            payment: self.suite.payment_of(order_id).await?,
        })
    }

    /// Claims what is left of a product's stock.
    pub(super) async fn claim_stock(&mut self, sku: &str, available: i64, reserved: i64) -> anyhow::Result<()> {
        let product: Product = self.suite.product(sku).await?.context("the product is gone")?;
        let claim = format!("{available} units are available and {reserved} reserved");
        self.claim_is(&claim, (product.available, product.reserved), (available, reserved));
        Ok(())
    }

    /// Claims that an order was called off and nothing of it is left: no stock, no money.
    pub(super) async fn claim_undone(&mut self, ended: &Ended) -> anyhow::Result<()> {
        self.claim_is("the order is CANCELLED", ended.order.status.as_str(), "CANCELLED");
        self.claim_is("its saga is COMPENSATED", ended.saga.status.as_str(), "COMPENSATED");
        self.claim("inventory and payment have both confirmed their undo", ended.saga.receipts_due.is_empty());
        let lines = ended.reservation.iter().flat_map(|r| &r.lines);
        self.claim("inventory holds nothing for it", lines.clone().all(|line| line.status == "RELEASED"));
        let Some(payment) = &ended.payment else { return Ok(()) };
        let kept = self.suite.charge(payment.payment_id).await?.filter(|charge| !charge.refunded);
        self.claim_is("the gateway keeps nothing of it", kept, None);
        Ok(())
    }
}
