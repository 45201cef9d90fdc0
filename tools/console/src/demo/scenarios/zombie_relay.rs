//! 18: the replica that publishes order's events hangs for twenty seconds. The other one takes over within the time of
//! the lease, and when the first wakes up, believing that nothing has happened, it can do no harm.

use std::{collections::HashSet, time::Duration};

use anyhow::Context;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    audit,
    demo::stage::{PATIENCE, Stage},
    suite::{FaultSpec, NewOrder, ORDER, Scope, Suite},
};

const FROZEN: Duration = Duration::from_secs(20);

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and a second replica of order").await;
    let sku = stage.product(1_000, 1_200).await?;
    let first = stage.suite.clone();
    let second = stage.start_replica(ORDER).await?;
    // There may have been a second one already, which led until it was started anew.
    let leading = async || Ok(first.metric(ORDER, "relay_active").await?.filter(|active| *active > 0.0));
    stage.claim_soon("the first one's relay leads", PATIENCE, leading).await?;
    stage.claim_is("the second one's does not", leads(&second).await?, false);
    let before = second.relay(ORDER).await?;

    stage.step("Orders arrive; the first replica freezes while it is about to publish").await;
    // So that it surely has something in hand when it freezes, and still wants to publish it when it wakes up.
    let scope = Scope { sku: Some(sku.clone()), ..Scope::default() };
    let slow = FaultSpec::new("bus_publish", "latency").latency_ms(3_000).first(1).scope(scope);
    stage.arm(ORDER, slow).await?;
    let meanwhile = stage.place_meanwhile(NewOrder::crowd(&sku, 60, "tok_visa"), 30, vec![second.clone()]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.freeze("order").await?;
    let frozen = Instant::now();
    // Whatever is asked from here on is asked of the replica that answers.
    stage.suite = second.clone();
    let mut placed = meanwhile.placed().await?;
    stage.claim_is("all of them were accepted", placed.len(), 60);

    stage.step("The second replica takes over").await;
    let taken_over = async || {
        let relay = second.relay(ORDER).await?;
        Ok(Some(relay).filter(|relay| relay.active && relay.epoch > before.epoch))
    };
    let relay = stage.claim_soon("its relay holds the lease", PATIENCE, taken_over).await?;
    stage.note(&format!("epoch {} instead of {}, after {:.1} s", relay.epoch, before.epoch, since(frozen)));
    stage.claim_tally(&placed, 60, PATIENCE).await?;

    stage.step("After twenty seconds the first replica wakes up, as a zombie").await;
    tokio::time::sleep_until(frozen + FROZEN).await;
    let meanwhile =
        stage.place_meanwhile(NewOrder::crowd(&sku, 60, "tok_visa"), 30, vec![first.clone(), second.clone()]);
    stage.thaw("order").await?;
    placed.extend(meanwhile.placed().await?);
    stage.claim_tally(&placed, 120, PATIENCE).await?;
    let stands_by = async || Ok(first.metric(ORDER, "relay_active").await?.filter(|active| *active == 0.0));
    stage.claim_soon("its relay has seen that another one leads", PATIENCE, stands_by).await?;
    let after = second.relay(ORDER).await?;
    stage.claim_is("which has led all the time", after.epoch, relay.epoch);
    let events: HashSet<Uuid> = stage.events_of(ORDER, &placed).await?.into_iter().collect();
    let broker = audit::connect_broker(&stage.stores).await?;
    let stored = audit::event_ids(&broker, "ORDER").await?.iter().filter(|id| events.contains(id)).count();
    stage.claim_is("the orders have two events each", events.len(), 240);
    stage.claim_is("and the stream has none of them twice", stored, 240);
    stage.claim_stock(&sku, 880, 120).await?;
    stage.suite = first;
    stage.disarm(ORDER).await?;
    stage.stop_replica(ORDER).await
}

async fn leads(replica: &Suite) -> anyhow::Result<bool> {
    let active = replica.metric(ORDER, "relay_active").await?;
    Ok(active.context("order does not tell whether its relay leads")? > 0.0)
}

fn since(moment: Instant) -> f64 {
    moment.elapsed().as_secs_f64()
}
