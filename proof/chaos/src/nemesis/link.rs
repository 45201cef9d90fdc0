//! Links that are slow, silent, torn or deaf, between one replica and a server, or between a whole service and it.

use std::{sync::Arc, time::Duration};

use contracts::{PAYMENT, SERVICES};
use rand::{Rng, seq::IndexedRandom};
use tokio::time::{Instant, sleep};

use super::Strike;
use crate::{
    proxy::{Manner, Proxy},
    stage::Replica,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Postgres,
    Nats,
    Gateway,
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
}

pub(super) async fn strike(strike: &mut Strike, link: Link, deed: LinkDeed) -> anyhow::Result<()> {
    let victims = victims(strike, link);
    let proxies: Vec<&Proxy> = victims.iter().filter_map(|replica| proxy(replica, link)).collect();
    let end = Instant::now() + strike.length;
    for proxy in &proxies {
        match deed {
            LinkDeed::Latency => proxy.behave(Manner::Latency(Duration::from_millis(strike.rng.random_range(20..250)))),
            LinkDeed::Drop => proxy.behave(Manner::Silent),
            LinkDeed::HalfOpen => proxy.half_open(),
            LinkDeed::AnswersLost => proxy.behave(Manner::AnswersLost),
            LinkDeed::Reset => {}
        }
        strike.hit();
    }
    while matches!(deed, LinkDeed::Reset) && Instant::now() < end {
        proxies.iter().for_each(|proxy| proxy.reset());
        strike.hits(proxies.len() as u64);
        sleep(Duration::from_millis(strike.rng.random_range(200..1_200))).await;
    }
    tokio::time::sleep_until(end).await;
    proxies.iter().for_each(|proxy| proxy.heal());
    Ok(())
}

fn victims(strike: &mut Strike, link: Link) -> Vec<Arc<Replica>> {
    let service = if link == Link::Gateway { PAYMENT } else { *SERVICES.choose(&mut strike.rng).unwrap_or(&PAYMENT) };
    let mut replicas = strike.stage.replicas_of(service);
    if strike.rng.random_bool(0.5) {
        replicas.truncate(1);
    }
    replicas
}

fn proxy(replica: &Replica, link: Link) -> Option<&Proxy> {
    match link {
        Link::Postgres => Some(&replica.database),
        Link::Nats => Some(&replica.broker),
        Link::Gateway => replica.gateway.as_ref(),
    }
}
