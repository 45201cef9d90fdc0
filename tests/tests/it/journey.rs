//! The journey of an order, as the console reads it with the auditor's rights: states, hops, what is left, faults.

use console::journey::{self, Journey, States};
use contracts::order_fulfillment::SAGA;
use saga::{Kind, Step};
use sqlx::{Connection as _, PgConnection};

use crate::{explain::bring_to, prelude::*};

async fn journey(suite: &TestSuite, placed: &Value) -> anyhow::Result<Journey> {
    let order_id: Uuid = placed["order_id"].as_str().context("no order id")?.parse()?;
    let mut auditor = PgConnection::connect(&suite.database.url_for("auditor")).await?;
    let journey = journey::read(&mut auditor, order_id).await?.context("no such order")?;
    auditor.close().await?;
    Ok(journey)
}

/// The states after the last entry must be those of the tables, whatever happened to the order.
fn agrees_with_tables(journey: &Journey) -> anyhow::Result<()> {
    let States { saga, order, stock, payment } = &journey.entries.last().context("no entries")?.after;
    let now = &journey.order;
    ensure!(journey.saga.as_ref().is_some_and(|of| of.status == *saga), "the saga is not {saga}: {journey:#?}");
    ensure!(*order == Some(now.status.as_str()), "the order is {}, not {order:?}", now.status);
    ensure!(*stock == now.stock_status.as_deref(), "the stock is {:?}, not {stock:?}", now.stock_status);
    ensure!(*payment == now.payment_status.as_deref(), "the payment is {:?}, not {payment:?}", now.payment_status);
    Ok(())
}

#[suite_tests::test]
async fn the_states_after_the_last_step_are_those_of_the_tables() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    participants.sell("RARE", 100, 1).await?;
    let confirmed = participants.confirmed(&[("A", 1)]).await?;
    agrees_with_tables(&journey(&suite, &confirmed).await?)?;
    let unfillable = participants.place(&[("RARE", 2)], "tok_visa").await?;
    let unpaid = participants.place(&[("A", 1)], "tok_declined").await?;
    let cancelled = participants.confirmed(&[("A", 1)]).await?;
    ensure!(participants.cancel(&cancelled).await? == 202);
    for order in [&unfillable, &unpaid, &cancelled] {
        participants.saga_becomes(order, "COMPENSATED").await?;
        agrees_with_tables(&journey(&suite, order).await?)?;
    }
    participants.time_out(&suite, participants.place(&[("A", 1)], "tok_visa")).await?;
    let late = sqlx::query_scalar::<_, Uuid>(
        "select business_key from saga.saga_instance where failed_at_step = 'detect_timeout'",
    );
    let late = late.fetch_one(&suite.pool).await?;
    // Its payment was asked for too late.
    eventually(async || {
        let journey = journey(&suite, &json!({ "order_id": late })).await?;
        ensure!(journey.entries.iter().any(|entry| entry.status == "SKIPPED"), "{journey:#?}");
        agrees_with_tables(&journey).map(Some)
    })
    .await?;
    suite.audit().await
}

#[suite_tests::test]
async fn each_event_of_an_ended_order_has_the_hops_to_its_readers() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    let journey = journey(&suite, &placed).await?;
    ensure!(journey.left.is_empty(), "{:#?}", journey.left);
    let steps: Vec<&str> = journey.entries.iter().map(|entry| entry.step.as_str()).collect();
    ensure!(steps == ["create_order", "reserve_stock", "process_payment", "confirm_order"], "{steps:?}");
    for (entry, next) in journey.entries.iter().zip(&journey.entries[1..]) {
        let consumer = format!("{}-{}", next.service, next.step);
        let reader = entry.readers.iter().find(|reader| reader.consumer == consumer);
        let hops = entry.hops(reader.with_context(|| format!("{consumer} has not read {entry:#?}"))?);
        let hops = hops.context("it is not published")?;
        ensure!(hops.outbox.is_positive() && !hops.transit.is_negative(), "{hops:?}");
        ensure!(hops.outbox + hops.transit < next.occurred_at - entry.occurred_at + time::Duration::SECOND, "{hops:?}");
    }
    suite.audit().await
}

#[suite_tests::test]
async fn duplicates_that_were_dropped_are_on_the_journey() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    suite.publish_all_again(ORDER).await?;
    suite.publish_all_again(ORDER).await?;
    eventually(async || {
        let journey = journey(&suite, &placed).await?;
        let dropped: Vec<Vec<i32>> = journey
            .entries
            .iter()
            .map(|entry| entry.readers.iter().map(|reader| reader.duplicates).collect())
            .collect();
        // The second time the first repetition is in the stream, too. A slow machine may add one of its own.
        ensure!(dropped.len() == 4 && dropped[0].iter().all(|dropped| *dropped >= 3), "{dropped:?}");
        ensure!(dropped[0].len() == 1 && dropped[3].is_empty(), "{dropped:?}");
        anyhow::Ok(())
    })
    .await?;
    suite.audit().await
}

/// Goes through the saga's table: an order that is stopped before a step has this step left, and no step that it has taken.
#[suite_tests::test]
async fn a_stopped_order_has_the_awaited_step_left() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    participants.sell("RARE", 100, 1).await?;
    for step in SAGA.steps.iter().filter(|step| step.consumes().is_some()) {
        let service = step.service.context("no service")?;
        let replica = participants.all().find(|r| r.service == service).context("no replica")?;
        suite.pause(replica, step.name).await?;
        let placed = bring_to(&suite, &participants, step.name).await?;
        let found = eventually(async || {
            let journey = journey(&suite, &placed).await?;
            let awaited: Vec<_> = journey.left.iter().filter(|left| left.is_awaited).map(|left| left.step).collect();
            ensure!(awaited == [step.name], "{awaited:?} instead of {}", step.name);
            anyhow::Ok(Some(journey))
        });
        let found = found.await?;
        let follows = |other: &&&Step| match step.kind {
            Kind::Compensation => false,
            Kind::Cancellation => other.is_compensation(),
            _ => other.number > step.number && !other.is_compensating(),
        };
        let expected: Vec<_> = SAGA.steps.iter().filter(|other| other.name == step.name || follows(other)).collect();
        let left: Vec<_> = found.left.iter().map(|left| left.step).collect();
        ensure!(left == expected.iter().map(|step| step.name).collect::<Vec<_>>(), "{left:?} at {}", step.name);
        suite.resume(replica, step.name).await?;
        eventually(async || anyhow::Ok(journey(&suite, &placed).await?.left.is_empty().then_some(()))).await?;
    }
    suite.audit().await
}

#[suite_tests::test]
async fn a_fault_is_seen_on_the_journey_of_the_order_it_hit() -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 1_000).await?;
    // At a step: a round of replenishment commits, too, and would use up its one hit.
    let fault = json!({"point": "before_commit", "kind": "error", "first": 1, "scope": {"step": "reserve_stock"}});
    participants.inventory.arm(&fault).await?;
    let hit = participants.confirmed(&[("A", 1)]).await?;
    let spared = participants.confirmed(&[("A", 1)]).await?;
    let hit = journey(&suite, &hit).await?;
    ensure!(hit.hits.len() == 1 && hit.hits[0].service == "inventory", "{:#?}", hit.hits);
    ensure!(hit.entries.iter().any(|entry| entry.fault.is_some() && entry.step == "reserve_stock"), "{hit:#?}");
    let spared = journey(&suite, &spared).await?;
    ensure!(spared.hits.is_empty() && spared.entries.iter().all(|entry| entry.fault.is_none()), "{spared:#?}");
    suite.audit().await
}
