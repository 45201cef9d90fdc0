//! Operators pause and resume consumers.

use contracts::order_fulfillment::RESERVE_STOCK;

use crate::prelude::*;

#[suite_tests::test]
async fn a_confirmed_pause_holds_in_every_replica() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    let second = suite.start(INVENTORY).await?;
    let orders = suite.jetstream().await?.get_stream(ORDER.stream()).await?;
    for round in 0..6 {
        let replica = if round % 2 == 0 { &participants.inventory } else { &second };
        let paused = replica.client.act("/api/admin/consumers/reserve_stock/pause").await?;
        let order = participants.place(&[("A", 1)], "tok_visa").await?;
        eventually(async || {
            // The order is in the stream, and no replica pulls it.
            let asked_for = orders.consumer_info(RESERVE_STOCK.consumer()).await?.num_waiting;
            let unpublished = suite.number("select count(*) from orders.outbox").await?;
            ensure!(unpublished == 0 && asked_for == 0, "{unpublished} unpublished, {asked_for} pulls");
            anyhow::Ok(())
        })
        .await?;
        let reserved = suite.number("select count(*) from inventory.reservation").await?;
        ensure!(reserved == round, "round {round}: the step went on after its pause was answered");
        ensure!(paused["missing"] == json!([]) && paused["items"][0]["paused"].is_string(), "{paused:#}");
        suite.resume(&second, "reserve_stock").await?;
        participants.saga_becomes(&order, "COMPLETED").await?;
    }
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_unconfirmed_pause_is_only_accepted() -> Test {
    let (suite, inventory) = TestSuite::alone(INVENTORY).await?;
    let ghost = "insert into inventory.lease values ('replica ghost', 'ghost', now() + interval '1 hour')";
    suite.execute(ghost).await?;
    let pause = "/api/admin/consumers/reserve_stock/pause";
    let accepted = inventory.client.post(pause, &json!({})).await?.expect(202)?;
    ensure!(accepted["missing"] == json!(["ghost"]), "{accepted:#}");
    suite.execute("delete from inventory.lease where holder = 'ghost'").await?;
    ensure!(inventory.client.act(pause).await?["missing"] == json!([]));
    Ok(())
}
