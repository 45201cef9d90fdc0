//! Single orders: their product, their placement, their end, and the claims about it.

use std::time::Duration;

use anyhow::Context;
use uuid::Uuid;

use super::{SAGA_TIMEOUT, ScenarioRun};
use crate::suite::{
    DeadLetter, DeadLetterAction, NewOrder, NewProduct, Order, Payment, Product, Reservation, Saga, until,
};

/// The records of an order whose saga has ended, in all services.
pub(crate) struct Ended {
    pub(crate) order: Order,
    pub(crate) saga: Saga,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) payment: Option<Payment>,
}

impl ScenarioRun {
    /// Begins a step with a product for this scenario only: creates it, and waits until order knows it.
    pub(crate) async fn step_with_product(&mut self, title: &str, units: i64, price: i64) -> anyhow::Result<String> {
        self.step(title).await;
        let id = Uuid::now_v7().simple().to_string().to_uppercase();
        // The last digits of a UUIDv7 are the random ones.
        let sku = format!("DEMO-{}", id.get(20..).unwrap_or(&id));
        self.suite.sell(&NewProduct::of(&sku, "Something for this scenario only", price, units), SAGA_TIMEOUT).await?;
        self.note(&format!("{sku}: {units} units at {price} US cents"));
        Ok(sku)
    }

    pub(crate) async fn place(&mut self, order: &NewOrder) -> anyhow::Result<Order> {
        self.place_as(order, &Uuid::now_v7().to_string()).await
    }

    pub(crate) async fn place_as(&mut self, order: &NewOrder, key: &str) -> anyhow::Result<Order> {
        let (order, _) = self.suite.place_surely(order, key, SAGA_TIMEOUT).await?;
        self.record.saga(order.saga_id);
        self.note(&format!("order {}", order.order_id));
        Ok(order)
    }

    /// Cancels an order, repeating the request until it is answered.
    pub(crate) async fn cancel(&self, order_id: Uuid, reason: &str) -> anyhow::Result<()> {
        until(SAGA_TIMEOUT, || async { self.suite.cancel(order_id, reason).await.map(Some) }).await?;
        Ok(())
    }

    /// The records of an order when its saga has ended.
    pub(crate) async fn ended(&self, order_id: Uuid) -> anyhow::Result<Ended> {
        let saga = self.suite.saga_when(order_id, Saga::is_terminal, SAGA_TIMEOUT).await?;
        self.all_of(order_id, saga.with_context(|| format!("the saga of order {order_id} has not ended"))?).await
    }

    /// The records of an order that was cancelled, possibly after it was confirmed.
    async fn undone(&self, order_id: Uuid) -> anyhow::Result<Ended> {
        /// A participant may still be starting.
        const LIMIT: Duration = Duration::from_secs(30);
        let undone = |saga: &Saga| matches!(saga.status.as_str(), "COMPENSATED" | "FAILED");
        let saga = self.suite.saga_when(order_id, undone, LIMIT).await?;
        self.all_of(order_id, saga.with_context(|| format!("order {order_id} is not compensated"))?).await
    }

    async fn all_of(&self, order_id: Uuid, saga: Saga) -> anyhow::Result<Ended> {
        Ok(Ended {
            order: self.suite.order(order_id).await?.context("the order is gone")?,
            saga,
            reservation: self.suite.reservation(order_id).await?,
            payment: self.suite.payment_of(order_id).await?,
        })
    }

    pub(crate) async fn claim_order(&self, claim: &str, order_id: Uuid, status: &str) -> anyhow::Result<()> {
        let found = self.suite.order(order_id).await?.map(|order| order.status);
        self.claim_is(claim, found.as_deref(), Some(status));
        Ok(())
    }

    pub(crate) async fn claim_payment(&self, claim: &str, order_id: Uuid, status: &str) -> anyhow::Result<()> {
        let found = self.suite.payment_of(order_id).await?.map(|payment| payment.status);
        self.claim_is(claim, found.as_deref(), Some(status));
        Ok(())
    }

    /// Claims that a saga comes into a state, and returns it.
    pub(crate) async fn claim_saga(
        &self,
        claim: &str,
        saga_id: Uuid,
        is: impl Fn(&Saga) -> bool,
    ) -> anyhow::Result<Saga> {
        self.claim_soon(claim, async || Ok(self.suite.saga(saga_id).await?.filter(&is))).await
    }

    pub(crate) fn note_actions(&self, letter: &DeadLetter) {
        for DeadLetterAction { actor, action, reason, outcome } in &letter.actions {
            let reason = reason.as_deref().unwrap_or("no reason");
            self.note(&format!("audit trail: {action} by {actor} ({reason}): {outcome}"));
        }
    }

    pub(crate) async fn claim_stock(&self, sku: &str, available: i64, reserved: i64) -> anyhow::Result<()> {
        let product: Product = self.suite.product(sku).await?.context("the product is gone")?;
        let claim = format!("{available} units are available and {reserved} reserved");
        self.claim_is(&claim, (product.available, product.reserved), (available, reserved));
        Ok(())
    }

    /// Claims that an order ends confirmed and paid, and returns its records.
    pub(crate) async fn claim_confirmed(&self, order_id: Uuid) -> anyhow::Result<Ended> {
        let ended = self.ended(order_id).await?;
        self.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");
        self.claim_is("its saga is COMPLETED", ended.saga.status.as_str(), "COMPLETED");
        let payment = ended.payment.as_ref();
        self.claim_is("the payment is CAPTURED", payment.map(|p| p.status.as_str()), Some("CAPTURED"));
        let Some(payment) = payment else { return Ok(ended) };
        let charge = self.suite.charge(payment.payment_id).await?.filter(|charge| !charge.refunded);
        let amount = charge.and_then(|charge| charge.amount);
        self.claim_is("the gateway has charged its amount", amount, Some(ended.order.total.amount));
        Ok(ended)
    }

    /// Claims that an order is cancelled and holds no stock and no money, and returns its records.
    pub(crate) async fn claim_undone(&self, order_id: Uuid) -> anyhow::Result<Ended> {
        let ended = self.undone(order_id).await?;
        self.claim_is("the order is CANCELLED", ended.order.status.as_str(), "CANCELLED");
        self.claim_is("its saga is COMPENSATED", ended.saga.status.as_str(), "COMPENSATED");
        self.claim("inventory and payment have both confirmed their undo", ended.saga.receipts_due.is_empty());
        let mut lines = ended.reservation.iter().flat_map(|r| &r.lines);
        self.claim("inventory holds no stock for it", lines.all(|line| line.status == "RELEASED"));
        let Some(payment) = &ended.payment else { return Ok(ended) };
        let kept = self.suite.charge(payment.payment_id).await?.filter(|charge| !charge.refunded);
        self.claim_is("the gateway keeps no charge for it", kept, None);
        Ok(ended)
    }
}
