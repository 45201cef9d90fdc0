//! Single orders: a product of their own, their placement, their end, and what is claimed of it.

use std::time::Duration;

use anyhow::{Context, bail};
use uuid::Uuid;

use super::{PATIENCE, Stage};
use crate::suite::{NewOrder, NewProduct, Order, Payment, Product, Reservation, Saga, until};

/// All that the three services say of one order whose saga has ended.
pub(in crate::demo) struct Ended {
    pub(in crate::demo) order: Order,
    pub(in crate::demo) saga: Saga,
    pub(in crate::demo) reservation: Option<Reservation>,
    pub(in crate::demo) payment: Option<Payment>,
}

impl Stage {
    /// Creates a product that no other order wants, and waits until order knows it.
    pub(in crate::demo) async fn product(&mut self, units: i64, price: i64) -> anyhow::Result<String> {
        let id = Uuid::now_v7().simple().to_string().to_uppercase();
        // The last digits of a UUIDv7 are the random ones.
        let sku = format!("DEMO-{}", id.get(20..).unwrap_or(&id));
        self.suite.sell(&NewProduct::of(&sku, "Something for this scenario only", price, units), PATIENCE).await?;
        self.note(&format!("{sku}: {units} units at {price} US cents"));
        Ok(sku)
    }

    /// Places an order and does not wait for its end.
    pub(in crate::demo) async fn place(&mut self, order: &NewOrder) -> anyhow::Result<Order> {
        self.place_as(order, &Uuid::now_v7().to_string()).await
    }

    /// Places an order under a key of the client's.
    pub(in crate::demo) async fn place_as(&mut self, order: &NewOrder, key: &str) -> anyhow::Result<Order> {
        let (order, _) = self.suite.place_surely(order, key, PATIENCE).await?;
        self.record.saga(order.saga_id);
        self.note(&format!("order {}", order.order_id));
        Ok(order)
    }

    /// Cancels an order as a careful client does, who asks again until there is an answer.
    pub(in crate::demo) async fn cancel(&self, order_id: Uuid, reason: &str) -> anyhow::Result<()> {
        until(PATIENCE, || async { self.suite.cancel(order_id, reason).await.map(Some) }).await?;
        Ok(())
    }

    /// What everybody says of an order when its saga has ended.
    pub(in crate::demo) async fn ended(&mut self, order_id: Uuid) -> anyhow::Result<Ended> {
        self.ended_within(order_id, PATIENCE).await
    }

    pub(in crate::demo) async fn ended_within(&mut self, order_id: Uuid, limit: Duration) -> anyhow::Result<Ended> {
        let Some(saga) = self.suite.ended_saga(order_id, limit).await? else {
            bail!("the saga of order {order_id} has not ended after {}", humantime::format_duration(limit));
        };
        self.all_of(order_id, saga).await
    }

    /// What everybody says of an order that was cancelled, maybe after it was confirmed.
    pub(in crate::demo) async fn undone(&mut self, order_id: Uuid, limit: Duration) -> anyhow::Result<Ended> {
        let undone = |saga: &Saga| matches!(saga.status.as_str(), "COMPENSATED" | "FAILED");
        let saga = until(limit, async || Ok(self.suite.saga_of(order_id).await?.filter(undone))).await?;
        let saga = saga.with_context(|| format!("order {order_id} is not undone"))?;
        let saga = self.suite.saga(saga.saga_id).await?.context("the saga is gone")?;
        self.all_of(order_id, saga).await
    }

    async fn all_of(&self, order_id: Uuid, saga: Saga) -> anyhow::Result<Ended> {
        Ok(Ended {
            order: self.suite.order(order_id).await?.context("the order is gone")?,
            saga,
            reservation: self.suite.reservation(order_id).await?,
            payment: self.suite.payment_of(order_id).await?,
        })
    }

    /// Claims what is left of a product's stock.
    pub(in crate::demo) async fn claim_stock(&self, sku: &str, available: i64, reserved: i64) -> anyhow::Result<()> {
        let product: Product = self.suite.product(sku).await?.context("the product is gone")?;
        let claim = format!("{available} units are available and {reserved} reserved");
        self.claim_is(&claim, (product.available, product.reserved), (available, reserved));
        Ok(())
    }

    /// Claims that an order was confirmed and paid, once.
    pub(in crate::demo) async fn claim_confirmed(&self, ended: &Ended) -> anyhow::Result<()> {
        self.claim_is("the order is CONFIRMED", ended.order.status.as_str(), "CONFIRMED");
        self.claim_is("its saga is COMPLETED", ended.saga.status.as_str(), "COMPLETED");
        let payment = ended.payment.as_ref();
        self.claim_is("the payment is CAPTURED", payment.map(|p| p.status.as_str()), Some("CAPTURED"));
        let Some(payment) = payment else { return Ok(()) };
        let charge = self.suite.charge(payment.payment_id).await?.filter(|charge| !charge.refunded);
        let amount = charge.and_then(|charge| charge.amount);
        self.claim_is("the gateway has charged its amount", amount, Some(ended.order.total.amount));
        Ok(())
    }

    /// Claims that an order was called off and nothing of it is left: no stock, no money.
    pub(in crate::demo) async fn claim_undone(&self, ended: &Ended) -> anyhow::Result<()> {
        self.claim_is("the order is CANCELLED", ended.order.status.as_str(), "CANCELLED");
        self.claim_is("its saga is COMPENSATED", ended.saga.status.as_str(), "COMPENSATED");
        self.claim("inventory and payment have both confirmed their undo", ended.saga.receipts_due.is_empty());
        let mut lines = ended.reservation.iter().flat_map(|r| &r.lines);
        self.claim("inventory holds nothing for it", lines.all(|line| line.status == "RELEASED"));
        let Some(payment) = &ended.payment else { return Ok(()) };
        let kept = self.suite.charge(payment.payment_id).await?.filter(|charge| !charge.refunded);
        self.claim_is("the gateway keeps nothing of it", kept, None);
        Ok(())
    }
}
