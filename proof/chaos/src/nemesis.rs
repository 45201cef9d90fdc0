//! The table of nemeses. Each breaks one thing for a while and heals it; each family has a file.

mod broker;
mod clock;
mod database;
mod gateway;
mod link;
mod load;
mod messages;
mod services;

use std::{
    collections::{BTreeSet, HashSet},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use console::suite::GatewayFaults;
use rand::rngs::StdRng;
use serde::Serialize;
use testkit::Store;

pub use self::messages::FORGED;
use self::{
    link::{Link, LinkFault},
    messages::Forgery,
};
use crate::workload::Run;

/// The kind of outage; recovery is measured per kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Service,
    Nats,
    /// The broker lost acknowledged data.
    WipedBroker,
    Postgres,
    Link,
    Messages,
    Gateway,
    Burst,
    Clients,
    /// Only where clocks can be stepped.
    Clock,
}

impl Kind {
    /// The longest allowed recovery after an outage of this kind is healed.
    pub fn recovery_target(self) -> Duration {
        Duration::from_secs(match self {
            Kind::Messages | Kind::Clients | Kind::Clock => 2,
            Kind::Service => 3,
            Kind::Nats => 5,
            Kind::Postgres | Kind::Gateway => 8,
            Kind::WipedBroker | Kind::Link | Kind::Burst => 10,
        })
    }
}

/// Resources that only one nemesis may use at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Services,
    Broker,
    Database,
    Links,
    Gateway,
    /// Inventory's REST API, as used by order.
    Inventory,
    Load,
}

/// One way to break the suite.
#[derive(Debug)]
pub struct Nemesis {
    pub name: &'static str,
    pub kind: Kind,
    pub needs: Resource,
    /// The shortest and the longest duration, in seconds.
    pub seconds: (f64, f64),
    /// The part of an order's path that it breaks.
    pub path: Path,
    pub strike: StrikeFunction,
}

/// Breaks, waits and heals. Fails when something could not be broken or healed.
pub type StrikeFunction = for<'s> fn(&'s mut Strike) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

/// The faults of the whole run.
#[derive(Debug, Default)]
pub struct Tally {
    pub faults: AtomicU64,
    /// Messages that were deleted, by stream and sequence.
    deleted: Mutex<HashSet<(String, u64)>>,
}

impl Tally {
    pub fn deleted(&self) -> MutexGuard<'_, HashSet<(String, u64)>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One phase of one nemesis.
#[derive(Debug)]
pub struct Strike {
    pub run: Arc<Run>,
    pub length: Duration,
    pub rng: StdRng,
    pub faults: u64,
    /// When the cause was removed, if that was before the end of the strike. Recovery is measured from then.
    pub cured: Option<Instant>,
}

impl Strike {
    /// Counts one fault.
    fn hit(&mut self) {
        self.hits(1);
    }

    /// The cause is removed: from here on all time counts as recovery, including the restart of what was stopped.
    fn cures(&mut self) {
        self.cured = Some(Instant::now());
    }

    fn hits(&mut self, faults: u64) {
        self.faults += faults;
        self.run.tally.faults.fetch_add(faults, Ordering::Relaxed);
    }
}

/// Parts of an order's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Every step.
    Whole,
    /// Only the charge.
    Charge,
    /// None: it delays no order.
    Beside,
}

/// The kinds of every full run.
pub fn kinds() -> BTreeSet<Kind> {
    ALL.iter().map(|nemesis| nemesis.kind).collect()
}

pub fn named(name: &str) -> Option<&'static Nemesis> {
    ALL.iter().chain(CLOCKS).find(|nemesis| nemesis.name == name)
}

/// For each nemesis: name, kind, resource, duration in seconds, affected part of the path, function.
macro_rules! nemeses {
    ($($name:literal $kind:ident $needs:ident $least:literal-$most:literal $path:ident
        $family:ident::$function:ident($($argument:expr),*))*) => {
        &[$(Nemesis {
            name: $name,
            kind: Kind::$kind,
            needs: Resource::$needs,
            seconds: ($least, $most),
            path: Path::$path,
            strike: |strike| Box::pin($family::$function(strike $(, $argument)*)),
        }),*]
    };
}

/// Nemeses of clocks, where clocks can be stepped. Decisions depend on the database's clock only.
pub const CLOCKS: &[Nemesis] = nemeses! {
    "process_clock_ahead" Clock Services 3.0-8.0 Beside clock::process(1)
    "process_clock_behind" Clock Services 3.0-8.0 Beside clock::process(-1)
    "database_clock_ahead" Clock Database 3.0-8.0 Whole clock::database(1)
    "database_clock_behind" Clock Database 3.0-8.0 Whole clock::database(-1)
};

/// All others.
pub const ALL: &[Nemesis] = nemeses! {
    "kill_service" Service Services 4.0-10.0 Whole services::kill()
    "freeze_service" Service Services 1.0-30.0 Whole services::freeze()
    "rolling_restart" Service Services 1.0-1.0 Whole services::roll()
    "kill_nats" Nats Broker 1.0-8.0 Whole broker::kill()
    "pause_nats" Nats Broker 1.0-12.0 Whole broker::pause()
    "wipe_nats" WipedBroker Broker 0.5-2.0 Whole broker::wipe()
    "roll_back_nats" WipedBroker Broker 2.0-6.0 Whole broker::roll_back(Store::Whole)
    "roll_back_messages" WipedBroker Broker 2.0-6.0 Whole broker::roll_back(Store::Messages)
    "delete_consumer" WipedBroker Broker 2.0-5.0 Whole broker::delete_consumers()
    "delete_messages" WipedBroker Broker 2.0-5.0 Whole broker::delete_messages()
    "stop_postgres" Postgres Database 0.5-5.0 Whole database::stop()
    "terminate_backend" Postgres Database 3.0-8.0 Whole database::terminate()
    "hog_connections" Postgres Database 4.0-10.0 Whole database::hog_connections()
    "hog_locks" Postgres Database 2.0-6.0 Whole database::hog_locks()
    "long_transaction" Postgres Database 60.0-60.0 Beside database::long_transaction()
    "postgres_latency" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkFault::Latency)
    "postgres_drop" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkFault::Drop)
    "postgres_reset" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkFault::Reset)
    "postgres_half_open" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkFault::HalfOpen)
    "postgres_answers_lost" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkFault::AnswersLost)
    "nats_latency" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::Latency)
    "nats_drop" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::Drop)
    "nats_reset" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::Reset)
    "nats_half_open" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::HalfOpen)
    "nats_answers_lost" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::AnswersLost)
    "nats_acks_lost" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkFault::AcksLost)
    "gateway_latency" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkFault::Latency)
    "gateway_drop" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkFault::Drop)
    "gateway_reset" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkFault::Reset)
    "gateway_half_open" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkFault::HalfOpen)
    "gateway_answers_lost" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkFault::AnswersLost)
    "inventory_latency" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkFault::Latency)
    "inventory_drop" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkFault::Drop)
    "inventory_reset" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkFault::Reset)
    "inventory_half_open" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkFault::HalfOpen)
    "inventory_answers_lost" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkFault::AnswersLost)
    "keeper_latency" Link Broker 3.0-8.0 Whole link::strike(Link::Reconciler, LinkFault::Latency)
    "keeper_drop" Link Broker 3.0-8.0 Whole link::strike(Link::Reconciler, LinkFault::Drop)
    "keeper_reset" Link Broker 3.0-8.0 Whole link::strike(Link::Reconciler, LinkFault::Reset)
    "keeper_half_open" Link Broker 3.0-8.0 Whole link::strike(Link::Reconciler, LinkFault::HalfOpen)
    "keeper_answers_lost" Link Broker 3.0-8.0 Whole link::strike(Link::Reconciler, LinkFault::AnswersLost)
    "duplicate_events" Messages Broker 3.0-8.0 Beside messages::duplicate()
    "old_events" Messages Broker 2.0-5.0 Beside messages::old()
    "poison_messages" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::Poison)
    "unknown_version" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::UnknownVersion)
    "oversize_messages" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::Oversize)
    "gateway_slow" Gateway Gateway 3.0-10.0 Charge
        gateway::arm(GatewayFaults { latency_ms: 3_000, ..Default::default() })
    "gateway_errors" Gateway Gateway 3.0-10.0 Charge
        gateway::arm(GatewayFaults { error_rate: 0.6, ..Default::default() })
    "gateway_drops_answers" Gateway Gateway 3.0-10.0 Charge
        gateway::arm(GatewayFaults { drop_rate: 0.5, ..Default::default() })
    "kill_gateway" Gateway Gateway 1.0-5.0 Charge gateway::kill()
    "burst" Burst Load 10.0-10.0 Whole load::multiply(10)
    "flood" Burst Load 5.0-5.0 Whole load::multiply(50)
    "unruly_clients" Clients Load 5.0-10.0 Beside load::unruly()
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_nine_kinds() {
        assert_eq!(kinds().len(), 9, "{:?}", kinds());
    }

    #[test]
    fn names_are_unique() {
        for nemesis in ALL.iter().chain(CLOCKS) {
            assert_eq!(
                ALL.iter().chain(CLOCKS).filter(|other| other.name == nemesis.name).count(),
                1,
                "{}",
                nemesis.name
            );
            assert!(nemesis.seconds.0 <= nemesis.seconds.1, "{}", nemesis.name);
        }
    }
}
