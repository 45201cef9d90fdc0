//! However often an event is delivered, and to whichever replica, it has its effect once.

use anyhow::ensure;
use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES, consumers};
use suite_tests::{Dancers, Stage};
use testkit::eventually;

use crate::Test;

/// Everything that an effect could change, in one text.
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
async fn every_event_delivered_three_times_more_changes_nothing() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    one_order_of_every_kind(&stage, &suite).await?;
    stage.audit().await?;
    let (_order, _inventory, _payment) =
        tokio::try_join!(stage.start(ORDER), stage.start(INVENTORY), stage.start(PAYMENT))?;
    let before: String = sqlx::query_scalar(STATE).fetch_one(&stage.pool).await?;
    let steps_had = inbox_by_consumer(&stage).await?;
    for consumer in consumers() {
        let name = consumer.step.consumer();
        ensure!(steps_had.iter().any(|had| had == &name), "{name} was never taken");
    }
    let mut delivered = 0;
    for _ in 0..3 {
        let (a, b, c) = tokio::try_join!(
            stage.publish_all_again(ORDER),
            stage.publish_all_again(INVENTORY),
            stage.publish_all_again(PAYMENT)
        )?;
        delivered += a + b + c;
    }
    ensure!(delivered > 100, "only {delivered} repeats");
    all_consumed(&stage).await?;
    let after: String = sqlx::query_scalar(STATE).fetch_one(&stage.pool).await?;
    ensure!(before == after, "a repeat had an effect:\n{before}\n{after}");
    stage.audit().await
}

#[suite_tests::test]
async fn every_event_three_times_at_once_has_its_effect_once() -> Test {
    let stage = Stage::new().await?;
    let suite = stage.dancers().await?;
    let (_order, _inventory, _payment) =
        tokio::try_join!(stage.start(ORDER), stage.start(INVENTORY), stage.start(PAYMENT))?;
    let repeater = stage.repeat_every_event(2).await?;
    suite.sell("A", 500, 1000).await?;
    let mut orders = Vec::new();
    for n in 0..60 {
        let token = if n % 10 == 0 { "tok_declined" } else { "tok_visa" };
        let order = suite.place(&[("A", 1)], token).await?;
        if n % 7 == 0 {
            suite.cancel(&order).await?;
        }
        orders.push(order);
    }
    let open = "select count(*) from saga.saga_instance where status not in ('COMPLETED', 'COMPENSATED')";
    stage.becomes(open, 0).await?;
    repeater.abort();
    all_consumed(&stage).await?;
    let duplicates = |replica: &suite_tests::Replica| replica.duplicates();
    let seen = duplicates(&suite.order)? + duplicates(&suite.inventory)? + duplicates(&suite.payment)?;
    ensure!(seen > 50, "only {seen} repeats came to the first replicas: this proves nothing");
    stage.audit().await
}

async fn one_order_of_every_kind(stage: &Stage, suite: &Dancers) -> Test {
    // Few enough that none is replenished.
    suite.sell("A", 500, 90).await?;
    suite.sell("RARE", 500, 1).await?;
    let price = serde_json::json!({"price": {"amount": 600, "currency": "USD"}});
    let patch = suite.inventory.client.request(reqwest::Method::PATCH, "/api/products/A").json(&price);
    suite.inventory.client.send(patch).await?.expect(200)?;
    let name = serde_json::json!({"name": "another name"});
    let patch = suite.inventory.client.request(reqwest::Method::PATCH, "/api/products/A").json(&name);
    suite.inventory.client.send(patch).await?.expect(200)?;
    let confirmed = suite.place(&[("A", 2)], "tok_visa").await?;
    let unfillable = suite.place(&[("A", 1), ("RARE", 2)], "tok_visa").await?;
    let unpaid = suite.place(&[("A", 1)], "tok_declined").await?;
    let cancelled = suite.confirmed(&[("A", 1)]).await?;
    suite.cancel(&cancelled).await?;
    let early = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.cancel(&early).await?;
    suite.saga_becomes(&confirmed, "COMPLETED").await?;
    suite.sagas_become([&unfillable, &unpaid, &cancelled, &early], "COMPENSATED").await?;
    timed_out(stage, suite).await
}

/// An order whose deadline passes while its payment is held up.
async fn timed_out(stage: &Stage, suite: &Dancers) -> Test {
    stage.pause(&suite.payment, "process_payment").await?;
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&order, "IN_PROGRESS").await?;
    let due = sqlx::query("update saga.saga_instance set deadline = now() where business_key = $1::text::uuid");
    due.bind(order["order_id"].as_str()).execute(&stage.pool).await?;
    suite.saga_becomes(&order, "COMPENSATED").await?;
    stage.resume(&suite.payment, "process_payment").await
}

async fn inbox_by_consumer(stage: &Stage) -> anyhow::Result<Vec<String>> {
    Ok(sqlx::query_scalar("select distinct consumer from audit.inbox").fetch_all(&stage.pool).await?)
}

/// Waits until every consumer has acknowledged everything that its stream holds for it.
async fn all_consumed(stage: &Stage) -> Test {
    let jetstream = stage.jetstream().await?;
    eventually(std::time::Duration::from_secs(30), async || {
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
