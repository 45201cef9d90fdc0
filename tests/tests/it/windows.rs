//! The failure windows, hit on purpose; and what cannot be published at all.

use contracts::{
    Currency, Money, OrderId, PaymentId,
    order_fulfillment::{CONFIRM_ORDER, OrderConfirmed, PaymentFailed},
};
use faults::{FaultPoint, FaultSpec, Faults, Kind};
use messaging::{Context, PublishError};

use crate::prelude::*;

/// The windows in which a system of this kind loses or doubles something when a process ends there.
const WINDOWS: [FaultPoint; 5] = [
    FaultPoint::BeforeInboxClaim,
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommitBeforePublish,
    FaultPoint::AfterPublishBeforeMark,
    FaultPoint::AfterCommitBeforeAck,
];

#[suite_tests::test]
async fn every_window_hit_repeatedly_loses_no_order() -> Test {
    let suite = TestSuite::new().await?;
    let faults = Faults::armable();
    let inventory = suite.start_with(INVENTORY, faults.clone(), "").await?;
    let order = suite.start_with(ORDER, faults.clone(), &inventory.url).await?;
    let payment = suite.start_with(PAYMENT, faults.clone(), "").await?;
    let participants = Participants::of(order, inventory, payment).with_others(&suite).await?;
    participants.sell("A", 100, 1000).await?;
    let mut placed = Vec::new();
    for round in 0..50 {
        let point = WINDOWS[round % WINDOWS.len()];
        // Each hit of some of them pauses a consumer or a relay for up to a second.
        faults.arm(FaultSpec::new(point, Kind::Error).skip(u32::try_from(round % 3)?).first(1), "test")?;
        let body = order_of(&[("A", 1)], "tok_visa");
        placed.push(participants.order.client.place_until_accepted(&format!("window-{round}"), &body).await?);
    }
    participants.sagas_become(&placed, "COMPLETED").await?;
    let hit = faults.hits();
    for point in WINDOWS {
        ensure!(hit.contains_key(&(point, Kind::Error)), "{} was never hit: {hit:?}", point.as_str());
    }
    ensure!(participants.product("A").await?["reserved"] == 50);
    suite.nothing_was_counted().await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn only_committed_events_of_the_step_are_published() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let outbox = &order.app.participant().outbox;
    let (order_id, total) = (OrderId::new(), Money::new(1, Currency::USD));
    let confirmed = OrderConfirmed { order_id, customer_id: "alice".to_owned(), total };
    let foreign =
        PaymentFailed { order_id, payment_id: PaymentId::of(order_id), amount: total, decline_code: "none".to_owned() };
    let context = Context::background("test");
    let mut work = outbox.begin().await?;
    work.publish(&CONFIRM_ORDER, &context, 1, &confirmed)?;
    let refused = work.publish(&CONFIRM_ORDER, &context, 1, &foreign);
    ensure!(matches!(refused, Err(PublishError::NotEmitted { .. })), "{refused:?}");
    work.rollback().await?;
    let kept = "select (select count(*) from orders.outbox) + (select count(*) from orders.outbox_published)";
    ensure!(suite.number(kept).await? == 0);
    let mut work = outbox.begin().await?;
    work.publish(&CONFIRM_ORDER, &context, 1, &confirmed)?;
    work.commit().await?;
    ensure!(suite.number(kept).await? == 1);
    Ok(())
}
