//! Reads between the orders: what customers and operators look at.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};
use tokio::time::Instant;

use crate::suite::{Order, Suite, SuiteError, until};

/// What is read once an order was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Order,
    Saga,
    /// The first product of the order, in order's view.
    Product,
    /// The same, in inventory.
    Stock,
    /// The latest orders of its customer.
    OrdersOfCustomer,
}

impl Read {
    const ALL: [Read; 5] = [Read::Order, Read::Saga, Read::Product, Read::Stock, Read::OrdersOfCustomer];

    pub(super) fn any(rng: &mut StdRng) -> Self {
        Read::ALL[rng.random_range(0..Read::ALL.len())]
    }

    /// How long the answer took, or why there was none. As a placement, it is asked again where the suite cannot serve it at present.
    pub(super) async fn make(
        self,
        suite: &Suite,
        order: &Order,
        customer_id: &str,
        limit: Duration,
    ) -> Result<Duration, String> {
        let began = Instant::now();
        match until(limit, async || self.is_found(suite, order, customer_id).await.map(Some)).await {
            Ok(Some(true)) => Ok(began.elapsed()),
            Ok(_) => Err(format!("{self:?} of order {} is not found", order.order_id)),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn is_found(self, suite: &Suite, order: &Order, customer_id: &str) -> Result<bool, SuiteError> {
        let sku = order.lines.first().map(|line| line.sku.as_str()).unwrap_or_default();
        Ok(match self {
            Read::Order => suite.order(order.order_id).await?.is_some(),
            Read::Saga => suite.saga(order.saga_id).await?.is_some(),
            Read::Product => suite.product_view(sku).await?.is_some(),
            Read::Stock => suite.product(sku).await?.is_some(),
            Read::OrdersOfCustomer => !suite.latest_orders_of(customer_id).await?.is_empty(),
        })
    }
}
