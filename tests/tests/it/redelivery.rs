//! However often an event is delivered, and to any replica, it takes effect once.

use contracts::{SERVICES, consumers};

use crate::prelude::*;

/// Everything that an effect could change, as one text.
const STATE: &str = "
    select (select coalesce(json_agg(o order by order_id)::text, '') from orders.customer_order o)
        || (select coalesce(json_agg(p order by sku)::text, '') from orders.product_view p)
        || (select coalesce(json_agg(p order by sku)::text, '') from inventory.product p)
        || (select coalesce(json_agg(r order by order_id)::text, '') from inventory.reservation r)
        || (select coalesce(json_agg(l order by order_id, sku)::text, '') from inventory.reservation_line l)
        || (select coalesce(json_agg(p order by order_id)::text, '') from payment.payment p)
        || (select coalesce(json_agg(s order by saga_id)::text, '') from saga.saga_instance s)
        || (select count(*) from saga.saga_step)
        || (select count(*) from audit.outbox_published) || (select count(*) from audit.outbox)";

#[suite_tests::test]
async fn three_more_deliveries_of_every_event_change_nothing() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    one_order_of_every_kind(&suite, &participants).await?;
    suite.audit().await?;
    let (_order, _inventory, _payment) =
        tokio::try_join!(suite.start(ORDER), suite.start(INVENTORY), suite.start(PAYMENT))?;
    let before: String = sqlx::query_scalar(STATE).fetch_one(&suite.pool).await?;
    for consumer in consumers() {
        let name = consumer.step.consumer();
        let taken = format!("select count(*) from audit.inbox where consumer = '{name}'");
        ensure!(suite.number(taken).await? > 0, "{name} was never taken");
    }
    let mut delivered = 0;
    for _ in 0..3 {
        let (a, b, c) = tokio::try_join!(
            suite.publish_all_again(ORDER),
            suite.publish_all_again(INVENTORY),
            suite.publish_all_again(PAYMENT)
        )?;
        delivered += a + b + c;
    }
    ensure!(delivered > 100, "only {delivered} repeats");
    all_consumed(&suite).await?;
    let after: String = sqlx::query_scalar(STATE).fetch_one(&suite.pool).await?;
    ensure!(before == after, "a repeat had an effect:\n{before}\n{after}");
    suite.audit().await
}

#[suite_tests::test]
async fn every_event_tripled_takes_effect_once() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let second = tokio::try_join!(suite.start(ORDER), suite.start(INVENTORY), suite.start(PAYMENT))?;
    let repeater = suite.repeat_every_event(2).await?;
    participants.sell("A", 500, 1000).await?;
    let mut orders = Vec::new();
    for n in 0..60 {
        let token = if n % 10 == 0 { "tok_declined" } else { "tok_visa" };
        let order = participants.place(&[("A", 1)], token).await?;
        if n % 7 == 0 {
            participants.cancel(&order).await?;
        }
        orders.push(order);
    }
    suite.all_ended().await?;
    repeater.abort();
    all_consumed(&suite).await?;
    let Participants { order, inventory, payment, .. } = &participants;
    let first = async || anyhow::Ok(order.duplicates()? + inventory.duplicates()? + payment.duplicates()?);
    ensure!(first().await? > 50, "too few duplicates reached the first replicas for a proof");
    eventually(async || {
        let seen = first().await? + second.0.duplicates()? + second.1.duplicates()? + second.2.duplicates()?;
        let kept = suite.number("select sum(duplicates) from audit.inbox").await?;
        ensure!(u64::try_from(kept)? == seen, "{kept} duplicates are kept in the inboxes, of {seen} that were counted");
        anyhow::Ok(())
    })
    .await?;
    suite.audit().await
}

/// Orders that end in every way, and products that change: all steps are taken.
pub(crate) async fn one_order_of_every_kind(suite: &TestSuite, participants: &Participants) -> Test {
    // Few enough that no product is replenished.
    participants.sell("A", 500, 90).await?;
    participants.sell("RARE", 500, 1).await?;
    let price = json!({"price": {"amount": 600, "currency": "USD"}});
    for change in [price, json!({"name": "another name"})] {
        participants.inventory.client.patch("/api/products/A", &change).await?.expect(200)?;
    }
    let confirmed = participants.place(&[("A", 2)], "tok_visa").await?;
    let unfillable = participants.place(&[("A", 1), ("RARE", 2)], "tok_visa").await?;
    let unpaid = participants.place(&[("A", 1)], "tok_declined").await?;
    let cancelled = participants.confirmed(&[("A", 1)]).await?;
    participants.cancel(&cancelled).await?;
    let early = participants.place(&[("A", 1)], "tok_visa").await?;
    participants.cancel(&early).await?;
    participants.saga_becomes(&confirmed, "COMPLETED").await?;
    participants.sagas_become([&unfillable, &unpaid, &cancelled, &early], "COMPENSATED").await?;
    participants.time_out(suite, participants.place(&[("A", 1)], "tok_visa")).await
}

/// Waits until every consumer has acknowledged its whole stream.
async fn all_consumed(suite: &TestSuite) -> Test {
    let jetstream = suite.jetstream().await?;
    eventually(async || {
        for service in SERVICES {
            let stream = jetstream.get_stream(service.stream()).await?;
            for consumer in consumers().into_iter().filter(|c| c.publisher == service) {
                let name = consumer.step.consumer();
                let info = stream.consumer_info(&name).await?;
                ensure!(info.num_pending == 0 && info.num_ack_pending == 0, "{name} has not consumed everything");
            }
        }
        Ok(())
    })
    .await
}
