//! The table of the scenarios, one file each.

mod broker_down;
mod broker_wiped;
mod compensation_fails;
mod crash_windows;
mod customer_cancel;
mod dead_letter;
mod declines;
mod happy_path;
mod last_unit;
mod late_success;
mod orchestrated;
mod payment_refused;
mod payment_stopped;
mod poison;
mod rebuild_product_view;
mod second_replicas;
mod slow_gateway;
mod tripled;
mod unknown_outcome;
mod webhook;
mod zombie_relay;

use std::pin::Pin;

use super::{preflight::Need, scenario_run::ScenarioRun};

pub(super) struct Scenario {
    /// 0 for a counter-proof.
    pub(super) number: u8,
    pub(super) name: &'static str,
    /// One sentence without its full stop.
    pub(super) about: &'static str,
    pub(super) needs: &'static [Need],
    /// The invariants that it must violate; if empty, all must hold.
    pub(super) violated: &'static [&'static str],
    pub(super) play: for<'a> fn(&'a mut ScenarioRun) -> Play<'a>,
}

impl Scenario {
    pub(super) fn title(&self) -> String {
        if self.number == 0 { self.name.to_owned() } else { format!("{} {}", self.number, self.name) }
    }

    /// The name of its report.
    pub(super) fn key(&self) -> String {
        if self.number == 0 { self.name.replace(' ', "-") } else { format!("{:02}", self.number) }
    }
}

type Play<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

macro_rules! scenarios {
    ($($number:literal $module:ident [$($need:ident)*] $name:literal: $about:literal)*) => {
        &[$(Scenario {
            number: $number,
            name: $name,
            about: $about,
            needs: &[$(Need::$need),*],
            violated: &[],
            play: |run| Box::pin($module::play(run)),
        }),*]
    };
}

pub(super) const SCENARIOS: &[Scenario] = scenarios! {
    1 happy_path [] "happy path": "an order is reserved, paid and confirmed"
    2 customer_cancel [] "customer's cancel":
        "a confirmed or pending order is cancelled: stock is released and the payment refunded"
    3 rebuild_product_view [] "rebuild the product view":
        "order rebuilds its own view of the catalogue from inventory's"
    4 last_unit [] "the last unit": "50 buyers want 5 units: exactly 5 get one"
    5 payment_refused [] "payment refused": "the card is declined: the order is cancelled and the stock released"
    6 payment_stopped [Processes] "payment stopped":
        "payment is down until the deadline: the saga compensates and no card is charged later"
    7 dead_letter [Processes Faults] "dead-letter investigation":
        "a step fails for one order: its dead letter is inspected, rehearsed and replayed"
    8 broker_down [Broker] "NATS down":
        "the broker is down while 100 orders arrive: all are accepted, and fulfilled later"
    9 broker_wiped [Broker] "NATS wiped": "the broker loses all its data while orders are in flight: no order is lost"
    10 tripled [Faults] "everything three times": "every event is delivered three times and takes effect once"
    11 slow_gateway [Processes] "slow gateway":
        "the card processor is too slow: the breaker opens, probes and closes, and nothing is lost"
    12 late_success [Processes] "late success":
        "order receives the payment after the deadline: it stays cancelled, and the payment is refunded"
    13 crash_windows [Processes Faults] "crash windows":
        "order crashes in each failure window of its outbox: no order is lost or duplicated"
    14 unknown_outcome [] "unknown outcome": "the card is charged and the answer is lost: the retry does not charge again"
    15 compensation_fails [Processes Faults] "compensation fails":
        "due undos stay visible until confirmed; a stuck saga is FAILED until its dead letter is replayed"
    16 declines [] "all cards declined": "30 seconds of declines: no breaker opens, no event becomes a dead letter"
    17 poison [Publisher] "a poison event": "an undecodable event: one dead letter, and all other events are processed"
    18 zombie_relay [Processes Faults] "zombie relay":
        "the publishing replica hangs for 20 seconds, is replaced, and resumes: nothing is duplicated"
    19 second_replicas [Processes] "second replicas":
        "every service gets a second replica, then the first one is killed"
    20 webhook [Processes] "webhook":
        "order posts its events to an endpoint that is down, fails and refuses one: each arrives once, in order"
    21 orchestrated [Processes Faults] "orchestrated":
        "a coordinator commands the steps of an order, dies, and is succeeded by another one"
};
