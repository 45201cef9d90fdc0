//! Links that are slow, silent, reset or lossy, between one replica or all replicas of a service and a server.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES};
use rand::{Rng, seq::IndexedRandom};
use testkit::{Manner, Proxy, eventually};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{Strike, broker};
use crate::testbed::{Replica, Testbed};

/// Concurrent nemeses also break what a rebuild needs, and heal it within this time.
const REBUILT_WITHIN: Duration = Duration::from_secs(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Postgres,
    Nats,
    /// From payment to the card processor.
    Gateway,
    /// From order to inventory, while order rebuilds its catalogue.
    Inventory,
    /// From the topology reconciler to NATS, while a consumer is deleted.
    Reconciler,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum LinkFault {
    Latency,
    /// Nothing arrives for a while.
    Drop,
    /// Connections are reset again and again.
    Reset,
    /// Connections lose their other end without a FIN or RST.
    HalfOpen,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// Everything arrives but what consumers acknowledge.
    AcksLost,
}

pub(super) async fn strike(strike: &mut Strike, link: Link, fault: LinkFault) -> anyhow::Result<()> {
    let testbed = Arc::clone(&strike.run.testbed);
    let victims = victims(strike, link);
    let proxies = proxies(&testbed, &victims, link);
    if link == Link::Inventory {
        // Opens a connection that can break.
        can_rebuild(&testbed, &victims).await?;
    }
    let end = Instant::now() + strike.length;
    for proxy in &proxies {
        match fault {
            LinkFault::Latency => {
                proxy.behave(Manner::Latency(Duration::from_millis(strike.rng.random_range(20..250))))
            }
            LinkFault::Drop => proxy.behave(Manner::Silent),
            LinkFault::HalfOpen => proxy.half_open(),
            LinkFault::AnswersLost => proxy.behave(Manner::AnswersLost),
            LinkFault::AcksLost => proxy.behave(Manner::AcksLost),
            LinkFault::Reset => continue,
        }
        strike.hit();
    }
    let deleted = if link == Link::Reconciler { broker::delete_a_consumer(strike).await } else { Ok(()) };
    let (rebuilt, ()) = tokio::join!(
        async { if link == Link::Inventory { rebuild_until(&testbed, &victims, end).await } else { Ok(()) } },
        trouble(strike, fault, &proxies, end)
    );
    proxies.iter().for_each(|proxy| proxy.heal());
    deleted.and(rebuilt)?;
    if link == Link::Inventory {
        can_rebuild(&testbed, &victims).await?;
    }
    Ok(())
}

/// Repeats resets for the length of the strike.
async fn trouble(strike: &mut Strike, fault: LinkFault, proxies: &[&Proxy], end: Instant) {
    while matches!(fault, LinkFault::Reset) && Instant::now() < end {
        proxies.iter().for_each(|proxy| proxy.reset());
        strike.hits(proxies.len() as u64);
        sleep(Duration::from_millis(strike.rng.random_range(200..1_200))).await;
    }
    sleep_until(end).await;
}

/// A failing rebuild must be answered with 503.
async fn rebuild_until(testbed: &Testbed, orders: &[Arc<Replica>], end: Instant) -> anyhow::Result<()> {
    while Instant::now() < end {
        for order in orders {
            // No answer: the service may be down, or slower than the strike is long.
            let rebuilt = timeout_at(end, order.suite(testbed).rebuild_catalogue()).await;
            if let Ok(Err(error)) = rebuilt
                && error.status().is_some_and(|status| status != 503)
            {
                return Err(error).context("a failing rebuild of the catalogue is not answered with 503");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn can_rebuild(testbed: &Testbed, orders: &[Arc<Replica>]) -> anyhow::Result<()> {
    eventually(REBUILT_WITHIN, async || {
        for order in orders {
            order.suite(testbed).rebuild_catalogue().await?;
        }
        anyhow::Ok(())
    })
    .await
}

fn victims(strike: &mut Strike, link: Link) -> Vec<Arc<Replica>> {
    let service = match link {
        Link::Postgres | Link::Nats => *SERVICES.choose(&mut strike.rng).unwrap_or(&PAYMENT),
        Link::Gateway => PAYMENT,
        Link::Inventory => ORDER,
        Link::Reconciler => return Vec::new(),
    };
    let mut replicas = strike.run.testbed.replicas_of(service);
    if replicas.len() > 1 && strike.rng.random_bool(0.5) {
        let spared = strike.rng.random_range(0..replicas.len());
        replicas.remove(spared);
    }
    replicas
}

fn proxies<'s>(testbed: &'s Testbed, victims: &'s [Arc<Replica>], link: Link) -> Vec<&'s Proxy> {
    let of = |replica: &'s Arc<Replica>| match link {
        Link::Postgres => Some(&replica.database),
        Link::Nats => Some(&replica.broker),
        Link::Gateway => replica.servers.get("gateway_simulator"),
        Link::Inventory => replica.servers.get(INVENTORY.0),
        Link::Reconciler => None,
    };
    let reconciler = (link == Link::Reconciler).then_some(&testbed.reconciler_broker);
    victims.iter().filter_map(of).chain(reconciler).collect()
}
