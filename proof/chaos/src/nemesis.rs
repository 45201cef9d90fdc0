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
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::rngs::StdRng;
use serde::Serialize;

pub use self::messages::FORGED;
use self::{
    broker::BrokerDeed,
    clock::ClockDeed,
    database::DatabaseDeed,
    gateway::GatewayDeed,
    link::{Link, LinkDeed},
    load::LoadDeed,
    messages::MessageDeed,
    services::ServiceDeed,
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
    deed: Deed,
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Service(ServiceDeed),
    Broker(BrokerDeed),
    Database(DatabaseDeed),
    Link(Link, LinkDeed),
    Messages(MessageDeed),
    Gateway(GatewayDeed),
    Load(LoadDeed),
    Clock(ClockDeed),
}

/// What was done, over the whole run.
#[derive(Debug, Default)]
pub struct Tally {
    pub faults: AtomicU64,
    /// Messages that were deleted, by stream and sequence.
    deleted: Mutex<HashSet<(String, u64)>>,
    /// Messages that no service ever published.
    pub forged_messages: AtomicU64,
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
    /// Which part of an order's path it breaks.
    pub fn path(&self) -> Path {
        match self.deed {
            Deed::Gateway(_) | Deed::Link(Link::Gateway, _) => Path::Charge,
            // Messages that come twice or cannot be read, clients who hang up, and what only the catalogue is made anew by.
            Deed::Messages(_) | Deed::Load(LoadDeed::Unruly) | Deed::Link(Link::Inventory, _) => Path::Beside,
            Deed::Database(DatabaseDeed::LongTransaction) | Deed::Clock(ClockDeed::Process { .. }) => Path::Beside,
            Deed::Service(_)
            | Deed::Broker(_)
            | Deed::Database(_)
            | Deed::Load(_)
            | Deed::Link(..)
            | Deed::Clock(_) => Path::Whole,
        }
    }

    /// Breaks, waits and heals.
    pub async fn strike(&self, strike: &mut Strike) -> anyhow::Result<()> {
        match self.deed {
            Deed::Service(deed) => services::strike(strike, deed).await,
            Deed::Broker(deed) => broker::strike(strike, deed).await,
            Deed::Database(deed) => database::strike(strike, deed).await,
            Deed::Link(link, deed) => link::strike(strike, link, deed).await,
            Deed::Messages(deed) => messages::strike(strike, deed).await,
            Deed::Gateway(deed) => gateway::strike(strike, deed).await,
            Deed::Load(deed) => load::strike(strike, deed).await,
            Deed::Clock(deed) => clock::strike(strike, deed).await,
        }
    }
}

/// The nemesis of this name.
pub fn named(name: &str) -> Option<&'static Nemesis> {
    ALL.iter().chain(CLOCKS).find(|nemesis| nemesis.name == name)
}

const fn nemesis(
    name: &'static str,
    kind: Kind,
    needs: &'static [Resource],
    seconds: (f64, f64),
    deed: Deed,
) -> Nemesis {
    Nemesis { name, kind, needs, seconds, deed }
}

const fn link(name: &'static str, needs: &'static [Resource], link: Link, deed: LinkDeed) -> Nemesis {
    nemesis(name, Kind::Link, needs, (3.0, 8.0), Deed::Link(link, deed))
}

const SERVICES: &[Resource] = &[Resource::Services];
const BROKER: &[Resource] = &[Resource::Broker];
const DATABASE: &[Resource] = &[Resource::Database];
const LINKS: &[Resource] = &[Resource::Links];
const GATEWAY: &[Resource] = &[Resource::Gateway];
const INVENTORY: &[Resource] = &[Resource::Inventory];
const LOAD: &[Resource] = &[Resource::Load];

const fn clock(name: &'static str, needs: &'static [Resource], deed: ClockDeed) -> Nemesis {
    nemesis(name, Kind::Clock, needs, (3.0, 8.0), Deed::Clock(deed))
}

/// Where clocks can be stepped.
pub const CLOCKS: &[Nemesis] = &[
    clock("process_clock_ahead", SERVICES, ClockDeed::Process { hours: 1 }),
    clock("process_clock_behind", SERVICES, ClockDeed::Process { hours: -1 }),
    clock("database_clock_ahead", DATABASE, ClockDeed::Database { hours: 1 }),
    clock("database_clock_behind", DATABASE, ClockDeed::Database { hours: -1 }),
];

/// All others.
pub const ALL: &[Nemesis] = &[
    nemesis("kill_service", Kind::Service, SERVICES, (4.0, 10.0), Deed::Service(ServiceDeed::Kill)),
    nemesis("freeze_service", Kind::Service, SERVICES, (1.0, 30.0), Deed::Service(ServiceDeed::Freeze)),
    nemesis("rolling_restart", Kind::Service, SERVICES, (1.0, 1.0), Deed::Service(ServiceDeed::Roll)),
    nemesis("kill_nats", Kind::Nats, BROKER, (1.0, 8.0), Deed::Broker(BrokerDeed::Kill)),
    nemesis("pause_nats", Kind::Nats, BROKER, (1.0, 12.0), Deed::Broker(BrokerDeed::Pause)),
    nemesis("wipe_nats", Kind::WipedBroker, BROKER, (0.5, 2.0), Deed::Broker(BrokerDeed::Wipe)),
    nemesis("roll_back_nats", Kind::WipedBroker, BROKER, (2.0, 6.0), Deed::Broker(BrokerDeed::RollBack)),
    nemesis("roll_back_messages", Kind::WipedBroker, BROKER, (2.0, 6.0), Deed::Broker(BrokerDeed::RollBackMessages)),
    nemesis("delete_consumer", Kind::WipedBroker, BROKER, (2.0, 5.0), Deed::Broker(BrokerDeed::DeleteConsumer)),
    nemesis("delete_messages", Kind::WipedBroker, BROKER, (2.0, 5.0), Deed::Broker(BrokerDeed::DeleteMessages)),
    nemesis("stop_postgres", Kind::Postgres, DATABASE, (0.5, 5.0), Deed::Database(DatabaseDeed::Stop)),
    nemesis("terminate_backend", Kind::Postgres, DATABASE, (3.0, 8.0), Deed::Database(DatabaseDeed::Terminate)),
    nemesis("hog_connections", Kind::Postgres, DATABASE, (4.0, 10.0), Deed::Database(DatabaseDeed::HogConnections)),
    nemesis("hog_locks", Kind::Postgres, DATABASE, (2.0, 6.0), Deed::Database(DatabaseDeed::HogLocks)),
    nemesis("long_transaction", Kind::Postgres, DATABASE, (60.0, 60.0), Deed::Database(DatabaseDeed::LongTransaction)),
    link("postgres_latency", LINKS, Link::Postgres, LinkDeed::Latency),
    link("postgres_drop", LINKS, Link::Postgres, LinkDeed::Drop),
    link("postgres_reset", LINKS, Link::Postgres, LinkDeed::Reset),
    link("postgres_half_open", LINKS, Link::Postgres, LinkDeed::HalfOpen),
    link("postgres_answers_lost", LINKS, Link::Postgres, LinkDeed::AnswersLost),
    link("nats_latency", LINKS, Link::Nats, LinkDeed::Latency),
    link("nats_drop", LINKS, Link::Nats, LinkDeed::Drop),
    link("nats_reset", LINKS, Link::Nats, LinkDeed::Reset),
    link("nats_half_open", LINKS, Link::Nats, LinkDeed::HalfOpen),
    link("nats_answers_lost", LINKS, Link::Nats, LinkDeed::AnswersLost),
    link("nats_acks_lost", LINKS, Link::Nats, LinkDeed::AcksLost),
    link("gateway_latency", GATEWAY, Link::Gateway, LinkDeed::Latency),
    link("gateway_drop", GATEWAY, Link::Gateway, LinkDeed::Drop),
    link("gateway_reset", GATEWAY, Link::Gateway, LinkDeed::Reset),
    link("gateway_half_open", GATEWAY, Link::Gateway, LinkDeed::HalfOpen),
    link("gateway_answers_lost", GATEWAY, Link::Gateway, LinkDeed::AnswersLost),
    link("inventory_latency", INVENTORY, Link::Inventory, LinkDeed::Latency),
    link("inventory_drop", INVENTORY, Link::Inventory, LinkDeed::Drop),
    link("inventory_reset", INVENTORY, Link::Inventory, LinkDeed::Reset),
    link("inventory_half_open", INVENTORY, Link::Inventory, LinkDeed::HalfOpen),
    link("inventory_answers_lost", INVENTORY, Link::Inventory, LinkDeed::AnswersLost),
    link("keeper_latency", BROKER, Link::Keeper, LinkDeed::Latency),
    link("keeper_drop", BROKER, Link::Keeper, LinkDeed::Drop),
    link("keeper_reset", BROKER, Link::Keeper, LinkDeed::Reset),
    link("keeper_half_open", BROKER, Link::Keeper, LinkDeed::HalfOpen),
    link("keeper_answers_lost", BROKER, Link::Keeper, LinkDeed::AnswersLost),
    nemesis("duplicate_events", Kind::Messages, BROKER, (3.0, 8.0), Deed::Messages(MessageDeed::Duplicate)),
    nemesis("old_events", Kind::Messages, BROKER, (2.0, 5.0), Deed::Messages(MessageDeed::Old)),
    nemesis("poison_messages", Kind::Messages, BROKER, (1.0, 3.0), Deed::Messages(MessageDeed::Poison)),
    nemesis("unknown_version", Kind::Messages, BROKER, (1.0, 3.0), Deed::Messages(MessageDeed::UnknownVersion)),
    nemesis("oversize_messages", Kind::Messages, BROKER, (1.0, 3.0), Deed::Messages(MessageDeed::Oversize)),
    nemesis("gateway_slow", Kind::Gateway, GATEWAY, (3.0, 10.0), Deed::Gateway(GatewayDeed::Slow)),
    nemesis("gateway_errors", Kind::Gateway, GATEWAY, (3.0, 10.0), Deed::Gateway(GatewayDeed::Errors)),
    nemesis("gateway_drops_answers", Kind::Gateway, GATEWAY, (3.0, 10.0), Deed::Gateway(GatewayDeed::DropsAnswers)),
    nemesis("kill_gateway", Kind::Gateway, GATEWAY, (1.0, 5.0), Deed::Gateway(GatewayDeed::Kill)),
    nemesis("burst", Kind::Burst, LOAD, (10.0, 10.0), Deed::Load(LoadDeed::Burst)),
    nemesis("flood", Kind::Burst, LOAD, (5.0, 5.0), Deed::Load(LoadDeed::Flood)),
    nemesis("unruly_clients", Kind::Clients, LOAD, (5.0, 10.0), Deed::Load(LoadDeed::Unruly)),
];

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
