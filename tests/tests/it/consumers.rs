//! An operator's hold on a consumer.

use std::time::Duration;

use anyhow::ensure;
use contracts::{INVENTORY, ORDER, order_fulfillment::RESERVE_STOCK};
use serde_json::json;
use suite_tests::Stage;
use testkit::eventually;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(20);

#[suite_tests::test]
async fn a_pause_that_is_answered_holds_in_every_replica() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    let second = stage.start(INVENTORY).await?;
    suite.sell("A", 100, 1000).await?;
    let orders = stage.jetstream().await?.get_stream(ORDER.stream()).await?;
    for round in 0..6 {
        let asked = if round % 2 == 0 { &suite.inventory } else { &second };
        let paused = asked.client.post("/api/admin/consumers/reserve_stock/pause", &json!({})).await?.expect(200)?;
        let order = suite.place(&[("A", 1)], "tok_visa").await?;
        eventually(LIMIT, async || {
            // The order is in the stream, and nobody asks for it.
            let asked_for = orders.consumer_info(RESERVE_STOCK.consumer()).await?.num_waiting;
            let unpublished = stage.number("select count(*) from orders.outbox").await?;
            ensure!(unpublished == 0 && asked_for == 0, "{unpublished} unpublished, {asked_for} pulls");
            anyhow::Ok(())
        })
        .await?;
        let reserved = stage.number("select count(*) from inventory.reservation").await?;
        ensure!(reserved == round, "round {round}: the step went on after its pause was answered");
        ensure!(paused["missing"] == json!([]) && paused["items"][0]["paused"].is_string(), "{paused:#}");
        stage.resume(&second, "reserve_stock").await?;
        suite.saga_becomes(&order, "COMPLETED").await?;
    }
    stage.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_pause_that_a_replica_has_not_confirmed_is_accepted_only() -> Test {
    let (stage, inventory) = Stage::alone(INVENTORY).await?;
    let ghost = "insert into inventory.lease values ('replica ghost', 'ghost', now() + interval '1 hour')";
    stage.execute(ghost).await?;
    let pause = "/api/admin/consumers/reserve_stock/pause";
    let accepted = inventory.client.post(pause, &json!({})).await?.expect(202)?;
    ensure!(accepted["missing"] == json!(["ghost"]), "{accepted:#}");
    stage.execute("delete from inventory.lease where holder = 'ghost'").await?;
    ensure!(inventory.client.post(pause, &json!({})).await?.expect(200)?["missing"] == json!([]));
    Ok(())
}
