//! Provocation by a primary that fails with a commit that its synchronous standby lacks.

use std::sync::Arc;

use anyhow::Context;
use console::suite::NewOrder;
use testkit::{Manner, Proxy, eventually};
use uuid::Uuid;

use crate::experiment::{Experiment, GOOD, LIMIT, PLENTY};

/// A session ends while its commit of an order waits for the standby, so the order is visible. When the relay has read its event,
/// the standby becomes the primary.
pub async fn lose_a_visible_commit(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.something_failed = true;
    let testbed = Arc::clone(&experiment.testbed);
    let mut primary = testbed.postgres.lock().await;
    let link = Proxy::start(primary.port()).await?;
    let standby = primary.standby(link.port()).await?;
    for statement in ["alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()"] {
        eventually(LIMIT, async || sqlx::query(statement).execute(&testbed.pool).await.map(drop)).await?;
    }
    testbed.ready(LIMIT).await?;
    experiment.order_available(1).await?;
    // The relay would wait for the standby with an event that is still to be published.
    const PUBLISHED: &str = "select count(*) = 2 from orders.outbox_published";
    experiment.wait_until("the first order's events are published", PUBLISHED).await?;

    link.behave(Manner::Silent);
    let suite = testbed.suite().clone();
    let lost = tokio::spawn(async move {
        let order = NewOrder::crowd(PLENTY, 1, GOOD).remove(0);
        suite.place(&order, &Uuid::now_v7().to_string(), None).await
    });
    const END: &str = "select pg_terminate_backend(pid) from pg_stat_activity
        where wait_event = 'SyncRep' and usename = 'order_service' and query ilike 'commit%'";
    experiment.wait_until("the session whose commit waits for the standby has ended", END).await?;
    // It waits before the publication; or it has published and moved the event, the third after the two of the first order.
    const READ: &str = "select exists (select from pg_stat_activity where wait_event = 'SyncRep'
        and usename = 'order_service' and query like 'with blocked as materialized%')
        or (select count(*) from orders.outbox_published) > 2";
    experiment.wait_until("the relay has read the event", READ).await?;
    primary.stop_immediate().await?;
    primary.fail_over(standby).await?;
    drop(primary);
    lost.await?.err().context("an order that no standby had was accepted")?;
    testbed.ready(LIMIT).await
}
