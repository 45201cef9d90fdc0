//! The customer is answered while the saga still runs: 202, and the order as it is.

use faults::{FaultPoint, Kind};
use tokio::time::timeout;

use super::{PLACE, place_many, text};
use crate::prelude::*;

#[suite_tests::test]
async fn a_service_that_drains_answers_before_the_end() -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 10).await?;
    let replica = &participants.order;
    let held = json!({"point": "participant_call", "kind": "hang", "scope": {"step": "process_payment"}});
    let held = replica.arm(&held).await?;
    let place = || {
        let request = replica.client.request(Method::POST, PLACE).header("idempotency-key", "one");
        let (client, request) = (replica.client.clone(), request.json(&order_of(&[("A", 1)], "tok_visa")));
        async move { client.send(request).await }
    };
    let placing = tokio::spawn(place());
    suite.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", 1).await?;
    replica.startup.draining.cancel();
    let placed = placing.await??;
    let location = placed.header("location").map(str::to_owned);
    let order = placed.expect(202)?;
    ensure!(order["status"] == "PENDING", "{order}");
    ensure!(location == Some(format!("/api/orders/{}", text(&order["order_id"]))), "{location:?}");
    let again = place().await?;
    ensure!(again.header("idempotency-replayed") == Some("true"));
    ensure!(again.expect(202)?["order_id"] == order["order_id"]);
    replica.client.delete(&format!("/api/admin/faults/{held}"), &json!({})).await?.expect(200)?;
    participants.saga_becomes(&order, "COMPLETED").await?;
    ensure!(place().await?.expect(200)?["status"] == "CONFIRMED");
    suite.audit().await
}

/// So many wait at most; the answer to one more does not wait for the end.
#[suite_tests::test(unaudited = "its orders are left in progress")]
async fn beyond_256_waits_an_order_is_answered_at_once() -> Test {
    // Order finds no inventory, so no saga ends.
    let resilience = "reserve_stock.time_limit=5m,reserve_stock.attempts=1000";
    let suite = TestSuite::with(Tuning { resilience, ..Tuning::default() }).await?;
    let (order, inventory) = (suite.start(ORDER).await?, suite.start(INVENTORY).await?);
    inventory.client.create_product("A", 100, 10).await?.expect(201)?;
    eventually(async || order.client.get("/api/products/A").await.is_ok_and(|answer| answer.status == 200)).await?;
    let mut placing = place_many(&order.client, 257);
    // Well before the longest wait, after which all are answered.
    let first = timeout(Duration::from_secs(20), placing.join_next()).await.context("all wait")?;
    let answered = first.context("nothing was placed")???.expect(202)?;
    ensure!(answered["status"] == "PENDING", "{answered}");
    suite.becomes("select count(*) from orders.customer_order", 257).await?;
    ensure!(placing.try_join_next().is_none(), "more than one is answered at once");
    Ok(())
}

/// Charges hold none of payment's connections while the card processor answers, so more are commanded than it has. Each attempt
/// outlasts this test, so all are on their way at the same time.
#[suite_tests::test(unaudited = "its orders are left in progress")]
async fn more_charges_are_on_their_way_than_payment_has_connections() -> Test {
    let resilience = "process_payment.time_limit=5m";
    let (suite, participants) = TestSuite::faulty(Tuning { resilience, ..Tuning::default() }, 100, 1_000).await?;
    let hang = json!({"point": "participant_call", "kind": "hang", "scope": {"step": "process_payment"}});
    participants.order.arm(&hang).await?;
    let _placing = place_many(&participants.order.client, 20);
    let held = (FaultPoint::ParticipantCall, Kind::Hang);
    eventually(async || participants.order.faults.hits().get(&held) == Some(&20)).await?;
    suite.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", 20).await
}
