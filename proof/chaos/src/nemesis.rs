//! What breaks the suite: a table of nemeses, each of which breaks one thing for a while and heals it. A family has a file.

mod broker;
mod clock;
mod database;
mod gateway;
mod link;
mod load;
mod messages;
mod services;

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::rngs::StdRng;
use serde::Serialize;
use testkit::Store;

pub use self::messages::FORGED;
use self::{
    link::{Link, LinkDeed},
    messages::Forgery,
};
use crate::{stage::Stage, workload::Pressure};

/// What kind of outage it is: recovery is measured for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Service,
    Nats,
    /// The broker has lost something that it had acknowledged.
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
    /// What strikes in every full run.
    pub const ALL: [Kind; 9] = [
        Kind::Service,
        Kind::Nats,
        Kind::WipedBroker,
        Kind::Postgres,
        Kind::Link,
        Kind::Messages,
        Kind::Gateway,
        Kind::Burst,
        Kind::Clients,
    ];

    /// The longest that the suite may need to be well again, once something of this kind is healed.
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

/// What no two nemeses may hold at a time, in the order in which it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Services,
    Broker,
    Database,
    Links,
    Gateway,
    /// What order is told by inventory's REST API.
    Inventory,
    Load,
}

/// One way to break the suite.
#[derive(Debug)]
pub struct Nemesis {
    pub name: &'static str,
    pub kind: Kind,
    pub needs: &'static [Resource],
    /// How long it lasts, in seconds: at least and at most.
    pub seconds: (f64, f64),
    /// Which part of an order's path it breaks.
    pub path: Path,
    deed: Deed,
}

/// Breaks, waits and heals.
type Deed = for<'s> fn(&'s mut Strike) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

/// What was done, over the whole run.
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
    pub stage: Arc<Stage>,
    pub pressure: Arc<Pressure>,
    pub tally: Arc<Tally>,
    pub length: Duration,
    pub rng: StdRng,
    pub faults: u64,
    /// Since when nothing keeps the suite from recovering; the end of the strike, if nothing else is said.
    pub cured: Option<Instant>,
}

impl Strike {
    /// Counts one fault.
    fn hit(&mut self) {
        self.hits(1);
    }

    /// From now on recovery is the suite's own business, the start of what was stopped included.
    fn cures(&mut self) {
        self.cured = Some(Instant::now());
    }

    fn hits(&mut self, faults: u64) {
        self.faults += faults;
        self.tally.faults.fetch_add(faults, Ordering::Relaxed);
    }
}

/// What an order passes on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Every step.
    Whole,
    /// Only the charge.
    Charge,
    /// Nothing of it: it keeps no order waiting.
    Beside,
}

impl Nemesis {
    /// Breaks, waits and heals. Fails when something could not be broken or, worse, not be healed.
    pub async fn strike(&self, strike: &mut Strike) -> anyhow::Result<()> {
        (self.deed)(strike).await
    }
}

pub fn named(name: &str) -> Option<&'static Nemesis> {
    ALL.iter().chain(CLOCKS).find(|nemesis| nemesis.name == name)
}

/// A nemesis a line: name, kind, what it needs, how many seconds it lasts, what part of the path it breaks, and how.
macro_rules! nemeses {
    ($($name:literal $kind:ident $needs:ident $least:literal-$most:literal $path:ident
        $family:ident::$deed:ident($($argument:expr),*))*) => {
        &[$(Nemesis {
            name: $name,
            kind: Kind::$kind,
            needs: &[Resource::$needs],
            seconds: ($least, $most),
            path: Path::$path,
            deed: |strike| Box::pin($family::$deed(strike $(, $argument)*)),
        }),*]
    };
}

/// Where clocks can be stepped. The database's is the only one that anything is decided by.
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
    "postgres_latency" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkDeed::Latency)
    "postgres_drop" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkDeed::Drop)
    "postgres_reset" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkDeed::Reset)
    "postgres_half_open" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkDeed::HalfOpen)
    "postgres_answers_lost" Link Links 3.0-8.0 Whole link::strike(Link::Postgres, LinkDeed::AnswersLost)
    "nats_latency" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::Latency)
    "nats_drop" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::Drop)
    "nats_reset" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::Reset)
    "nats_half_open" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::HalfOpen)
    "nats_answers_lost" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::AnswersLost)
    "nats_acks_lost" Link Links 3.0-8.0 Whole link::strike(Link::Nats, LinkDeed::AcksLost)
    "gateway_latency" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkDeed::Latency)
    "gateway_drop" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkDeed::Drop)
    "gateway_reset" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkDeed::Reset)
    "gateway_half_open" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkDeed::HalfOpen)
    "gateway_answers_lost" Link Gateway 3.0-8.0 Charge link::strike(Link::Gateway, LinkDeed::AnswersLost)
    "inventory_latency" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkDeed::Latency)
    "inventory_drop" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkDeed::Drop)
    "inventory_reset" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkDeed::Reset)
    "inventory_half_open" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkDeed::HalfOpen)
    "inventory_answers_lost" Link Inventory 3.0-8.0 Beside link::strike(Link::Inventory, LinkDeed::AnswersLost)
    "keeper_latency" Link Broker 3.0-8.0 Whole link::strike(Link::Keeper, LinkDeed::Latency)
    "keeper_drop" Link Broker 3.0-8.0 Whole link::strike(Link::Keeper, LinkDeed::Drop)
    "keeper_reset" Link Broker 3.0-8.0 Whole link::strike(Link::Keeper, LinkDeed::Reset)
    "keeper_half_open" Link Broker 3.0-8.0 Whole link::strike(Link::Keeper, LinkDeed::HalfOpen)
    "keeper_answers_lost" Link Broker 3.0-8.0 Whole link::strike(Link::Keeper, LinkDeed::AnswersLost)
    "duplicate_events" Messages Broker 3.0-8.0 Beside messages::duplicate()
    "old_events" Messages Broker 2.0-5.0 Beside messages::old()
    "poison_messages" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::Poison)
    "unknown_version" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::UnknownVersion)
    "oversize_messages" Messages Broker 1.0-3.0 Beside messages::forge(Forgery::Oversize)
    "gateway_slow" Gateway Gateway 3.0-10.0 Charge gateway::slow()
    "gateway_errors" Gateway Gateway 3.0-10.0 Charge gateway::errors()
    "gateway_drops_answers" Gateway Gateway 3.0-10.0 Charge gateway::drops_answers()
    "kill_gateway" Gateway Gateway 1.0-5.0 Charge gateway::kill()
    "burst" Burst Load 10.0-10.0 Whole load::multiply(5)
    "flood" Burst Load 5.0-5.0 Whole load::multiply(25)
    "unruly_clients" Clients Load 5.0-10.0 Beside load::unruly()
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_needs_are_in_the_order_of_taking() {
        for nemesis in ALL.iter().chain(CLOCKS) {
            assert_eq!(
                ALL.iter().chain(CLOCKS).filter(|other| other.name == nemesis.name).count(),
                1,
                "{}",
                nemesis.name
            );
            assert!(nemesis.needs.is_sorted() && nemesis.seconds.0 <= nemesis.seconds.1, "{}", nemesis.name);
        }
    }
}
