//! One run of the checker, and its result.

use std::{
    fmt::{self, Debug},
    hash::Hash,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::{Bounds, Guards, Saga};

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub saga: Saga,
    pub explored: Explored,
}

/// What a run of the checker has seen.
#[derive(Debug, Clone)]
pub struct Explored {
    pub unique_states: usize,
    pub states: usize,
    pub max_depth: usize,
    pub elapsed: Duration,
    /// All states within the bounds were visited.
    pub complete: bool,
    pub properties: Vec<PropertyResult>,
}

/// The result for one property.
#[derive(Debug, Clone)]
pub struct PropertyResult {
    pub name: &'static str,
    pub holds: bool,
    /// The steps to the counterexample, or to the example of a reachable state.
    pub path: Vec<String>,
}

/// When to stop before every state was visited.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub threads: usize,
    pub time: Option<Duration>,
    /// The run ends when this property is refuted; without it, when any is.
    pub refute: Option<&'static str>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { threads: 2, time: None, refute: None }
    }
}

/// Checks the choreographed saga.
pub fn check(saga: Saga, limits: Limits) -> Report {
    let explored = explore(saga, limits, |(order, action)| format!("{action:?} of order {order}"));
    Report { saga, explored }
}

/// Explores the states breadth first, so that a counterexample is short.
pub fn explore<M>(model: M, limits: Limits, step: impl Fn(&M::Action) -> String) -> Explored
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let began = Instant::now();
    let finish = match limits.refute {
        Some(name) => HasDiscoveries::AllOf([name].into()),
        None => HasDiscoveries::AnyFailures,
    };
    let properties = model.properties();
    let mut builder = model.checker().threads(limits.threads).finish_when(finish);
    if let Some(time) = limits.time {
        builder = builder.timeout(time);
    }
    let checker = builder.spawn_bfs().join();
    let discoveries = checker.discoveries();
    let elapsed = began.elapsed();
    let properties = properties.iter().map(|property| {
        let path = discoveries.get(property.name);
        let found = path.is_some();
        let holds = if property.expectation == Expectation::Sometimes { found } else { !found };
        let steps = path.map(|path| path.clone().into_actions()).unwrap_or_default();
        PropertyResult { name: property.name, holds, path: steps.iter().map(&step).collect() }
    });
    Explored {
        unique_states: checker.unique_state_count(),
        states: checker.state_count(),
        max_depth: checker.max_depth(),
        elapsed,
        complete: limits.time.is_none_or(|most| elapsed < most),
        properties: properties.collect(),
    }
}

impl Explored {
    /// The table header above a run of the twin.
    pub const HEADER: &str = "\
| states | depth | seconds | properties | |
|---|---|---|---|---|";

    /// Every state was visited, and every property holds.
    pub fn is_proven(&self) -> bool {
        self.complete && self.properties.iter().all(|p| p.holds)
    }

    pub fn result(&self, name: &str) -> Option<&PropertyResult> {
        self.properties.iter().find(|p| p.name == name)
    }

    /// The end of a row of the table.
    fn row(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.properties.iter().filter(|p| p.holds).count();
        write!(
            f,
            "{} | {} | {:.1} | {held} of {} | {} |",
            self.unique_states,
            self.max_depth,
            self.elapsed.as_secs_f64(),
            self.properties.len(),
            if self.complete { "all seen" } else { "cut short" },
        )?;
        for broken in self.properties.iter().filter(|p| !p.holds) {
            write!(f, "\nviolated: {}", broken.name)?;
            broken.path.iter().try_for_each(|step| write!(f, "\n    {step}"))?;
        }
        Ok(())
    }

    pub fn to_json(&self) -> Value {
        let property = |p: &PropertyResult| json!({"name": p.name, "holds": p.holds, "steps": p.path});
        json!({
            "unique_states": self.unique_states,
            "states": self.states,
            "max_depth": self.max_depth,
            "seconds": self.elapsed.as_secs_f64(),
            "complete": self.complete,
            "proven": self.is_proven(),
            "properties": self.properties.iter().map(property).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| ")?;
        self.row(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds { orders, stock, faults, replicas, .. } = self.saga.bounds;
        write!(f, "| {orders} | {stock} | {faults} | {replicas} | ")?;
        self.explored.row(f)
    }
}

impl Report {
    /// The table header above the reports.
    pub const HEADER: &str = "\
| orders | units | faults | replicas | states | depth | seconds | properties | |
|---|---|---|---|---|---|---|---|---|";

    pub fn to_json(&self) -> Value {
        let bounds = &self.saga.bounds;
        let mut report = self.explored.to_json();
        report["bounds"] = json!({
            "orders": bounds.orders, "stock": bounds.stock, "faults": bounds.faults, "drives": bounds.retries,
            "max_attempts": bounds.max_attempts, "replicas": bounds.replicas, "bad_cards": bounds.bad_cards,
        });
        report["guards"] =
            if self.saga.guards == Guards::ALL { json!("all") } else { json!(format!("{:?}", self.saga.guards)) };
        report
    }
}
