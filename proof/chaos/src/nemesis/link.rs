//! Links that are slow, silent, torn or deaf, between one process and a server, or between a whole service and it.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES};
use rand::{Rng, seq::IndexedRandom};
use testkit::eventually;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{Strike, broker};
use crate::{
    proxy::{Manner, Proxy},
    stage::{Replica, Stage},
};

/// Others break what a rebuild needs, too, and heal it within this time.
const REBUILT_WITHIN: Duration = Duration::from_secs(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Postgres,
    Nats,
    /// From payment to the card processor.
    Gateway,
    /// From order to inventory: order rebuilds its catalogue meanwhile.
    Inventory,
    /// From the keeper to NATS: a consumer vanishes meanwhile.
    Keeper,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum LinkDeed {
    Latency,
    /// Nothing arrives for a while.
    Drop,
    /// Connections are reset again and again.
    Reset,
    /// The other end of every connection is gone without a word.
    HalfOpen,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// Everything arrives but what consumers acknowledge.
    AcksLost,
}

pub(super) async fn strike(strike: &mut Strike, link: Link, deed: LinkDeed) -> anyhow::Result<()> {
    let stage = Arc::clone(&strike.stage);
    let victims = victims(strike, link);
    let proxies = proxies(&stage, &victims, link);
    if link == Link::Inventory {
        // From now on there is a connection that can break.
        can_rebuild(&stage, &victims).await?;
    }
    let end = Instant::now() + strike.length;
    for proxy in &proxies {
        match deed {
            LinkDeed::Latency => proxy.behave(Manner::Latency(Duration::from_millis(strike.rng.random_range(20..250)))),
            LinkDeed::Drop => proxy.behave(Manner::Silent),
            LinkDeed::HalfOpen => proxy.half_open(),
            LinkDeed::AnswersLost => proxy.behave(Manner::AnswersLost),
            LinkDeed::AcksLost => proxy.behave(Manner::AcksLost),
            LinkDeed::Reset => continue,
        }
        strike.hit();
    }
    let deleted = if link == Link::Keeper { broker::delete_a_consumer(strike).await } else { Ok(()) };
    let (rebuilt, ()) = tokio::join!(
        async { if link == Link::Inventory { rebuild_until(&stage, &victims, end).await } else { Ok(()) } },
        trouble(strike, deed, &proxies, end)
    );
    proxies.iter().for_each(|proxy| proxy.heal());
    deleted.and(rebuilt)?;
    if link == Link::Inventory {
        can_rebuild(&stage, &victims).await?;
    }
    Ok(())
}

/// What goes on as long as the strike.
async fn trouble(strike: &mut Strike, deed: LinkDeed, proxies: &[&Proxy], end: Instant) {
    while matches!(deed, LinkDeed::Reset) && Instant::now() < end {
        proxies.iter().for_each(|proxy| proxy.reset());
        strike.hits(proxies.len() as u64);
        sleep(Duration::from_millis(strike.rng.random_range(200..1_200))).await;
    }
    sleep_until(end).await;
}

/// Rebuilds that fail have to say so.
async fn rebuild_until(stage: &Stage, orders: &[Arc<Replica>], end: Instant) -> anyhow::Result<()> {
    while Instant::now() < end {
        for order in orders {
            // No answer: the service may be down, or slower than the strike is long.
            let rebuilt = timeout_at(end, order.suite(stage).rebuild_catalogue()).await;
            if let Ok(Err(error)) = rebuilt
                && error.status().is_some_and(|status| status != 503)
            {
                return Err(error).context("a rebuild of the catalogue fails, and does not say so");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn can_rebuild(stage: &Stage, orders: &[Arc<Replica>]) -> anyhow::Result<()> {
    eventually(REBUILT_WITHIN, async || {
        for order in orders {
            order.suite(stage).rebuild_catalogue().await?;
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
        Link::Keeper => return Vec::new(),
    };
    let mut replicas = strike.stage.replicas_of(service);
    if replicas.len() > 1 && strike.rng.random_bool(0.5) {
        let spared = strike.rng.random_range(0..replicas.len());
        replicas.remove(spared);
    }
    replicas
}

fn proxies<'s>(stage: &'s Stage, victims: &'s [Arc<Replica>], link: Link) -> Vec<&'s Proxy> {
    let of = |replica: &'s Arc<Replica>| match link {
        Link::Postgres => Some(&replica.database),
        Link::Nats => Some(&replica.broker),
        Link::Gateway => replica.servers.get("gateway_simulator"),
        Link::Inventory => replica.servers.get(INVENTORY.0),
        Link::Keeper => None,
    };
    let keeper = (link == Link::Keeper).then_some(&stage.keeper_broker);
    victims.iter().filter_map(of).chain(keeper).collect()
}
