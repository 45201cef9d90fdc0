//! 18: the replica that publishes order's events hangs for twenty seconds. The other one takes over when the lease expires, and
//! the first one is fenced off when it resumes.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    audit,
    demo::scenario_run::{SAGA_TIMEOUT, ScenarioRun},
    suite::{FaultSpec, ORDER, Scope},
};

const FROZEN: Duration = Duration::from_secs(20);

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and a second replica of order", 1_000, 1_200).await?;
    let first = run.suite.clone();
    let second = run.start_replica(ORDER).await?;
    // An earlier second replica may have held the lease until it was restarted.
    let leading = async || Ok(first.metric(ORDER, "relay_active").await?.filter(|active| *active > 0.0));
    run.claim_soon("the first one's relay is active", leading).await?;
    run.claim_is("the second one's is not", second.metric(ORDER, "relay_active").await?, Some(0.0));
    let before = second.relay(ORDER).await?;

    run.step("Orders arrive; the first replica freezes while it is about to publish").await;
    // The latency ensures that it has an event in flight when it freezes, and still publishes it when it resumes.
    let scope = Some(Scope { sku: Some(sku.clone()), ..Scope::default() });
    let slow = FaultSpec { latency_ms: Some(3_000), first: Some(1), scope, ..FaultSpec::new("bus_publish", "latency") };
    run.arm(ORDER, slow).await?;
    let meanwhile = run.place_meanwhile(&sku, 60, 30, vec![second.clone()]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    run.freeze("order").await?;
    let frozen = Instant::now();
    // From here on requests go to the replica that answers.
    run.suite = second.clone();
    let mut placed = meanwhile.placed().await?;
    run.claim_is("all of them were accepted", placed.len(), 60);

    run.step("The second replica takes over").await;
    let taken_over = async || {
        let relay = second.relay(ORDER).await?;
        Ok(Some(relay).filter(|relay| relay.active && relay.epoch > before.epoch))
    };
    let relay = run.claim_soon("its relay holds the lease", taken_over).await?;
    let after = frozen.elapsed().as_secs_f64();
    run.note(&format!("epoch {} instead of {}, after {after:.1} s", relay.epoch, before.epoch));
    run.claim_tally(&placed, 60, SAGA_TIMEOUT).await?;

    run.step("After twenty seconds the first replica resumes, as a zombie").await;
    tokio::time::sleep_until(frozen + FROZEN).await;
    let meanwhile = run.place_meanwhile(&sku, 60, 30, vec![first.clone(), second.clone()]);
    run.thaw("order").await?;
    placed.extend(meanwhile.placed().await?);
    run.claim_tally(&placed, 120, SAGA_TIMEOUT).await?;
    let stands_by = async || Ok(first.metric(ORDER, "relay_active").await?.filter(|active| *active == 0.0));
    run.claim_soon("its relay has seen that it lost the lease", stands_by).await?;
    let after = second.relay(ORDER).await?;
    run.claim_is("which the second one has held all the time", after.epoch, relay.epoch);
    let events: HashSet<Uuid> = run.events_of(ORDER, &placed).await?.into_iter().collect();
    let broker = audit::connect_broker(&run.stores).await?;
    let stored = audit::event_ids(&broker, "ORDER").await?.iter().filter(|id| events.contains(id)).count();
    run.claim_is("the orders have two events each", events.len(), 240);
    run.claim_is("and the stream has each of them once", stored, 240);
    run.claim_stock(&sku, 880, 120).await?;
    run.suite = first;
    run.disarm(ORDER).await?;
    run.stop_replica(ORDER).await
}
