//! Orders that end in every possible way, one after the other, for as long as the test runs.

use tokio::task::JoinHandle;

use super::monitored::Monitored;
use crate::prelude::*;

/// The time between two orders.
const PACE: Duration = Duration::from_millis(100);

const PATIENCE: Duration = Duration::from_secs(1);

/// Places orders until it is dropped.
pub(super) struct Orders(JoinHandle<()>);

impl Drop for Orders {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An order of one piece.
pub(super) fn order(customer: &str, sku: &str, token: &str) -> Value {
    json!({"customer_id": customer, "lines": [{"sku": sku, "quantity": 1}], "payment_method": token})
}

impl Orders {
    pub(super) async fn begin(monitored: &Monitored) -> anyhow::Result<Orders> {
        monitored.sell("PLENTY", 1_000_000).await?;
        monitored.sell("NONE-LEFT", 0).await?;
        let client = monitored.order.clone();
        Ok(Orders(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(PACE);
            for number in 0_u64.. {
                ticks.tick().await;
                // Some faults concern orders as they are placed.
                let _ = place(&client, number).await;
            }
        })))
    }
}

/// Most orders end well; of forty, one is refused for lack of stock and one by the card, two are cancelled, and two are
/// orchestrated. The card processor answers the fiftieth so slowly that it times out.
async fn place(client: &Client, number: u64) -> Test {
    let (sku, token) = match number % 40 {
        3 => ("NONE-LEFT", "tok_visa"),
        4 => ("PLENTY", "tok_declined"),
        _ if number == 50 => ("PLENTY", "tok_slow"),
        _ => ("PLENTY", "tok_visa"),
    };
    if number % 20 == 7 {
        // It is answered at its end, and goes on when nobody waits for that.
        let order = order("alice", sku, token);
        let asked = client.post("/api/orders/orchestrated", &order);
        tokio::time::timeout(PATIENCE, asked).await??.expect(201)?;
        return Ok(());
    }
    let placed = client.post("/api/orders", &order("alice", sku, token)).await?.expect(201)?;
    if number % 20 == 5 {
        let path = format!("/api/orders/{}/cancel", placed["order_id"].as_str().unwrap_or_default());
        client.post(&path, &json!({"reason": "changed my mind"})).await?;
    }
    Ok(())
}
