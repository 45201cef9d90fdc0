//! Tools that read what the console knows itself, with the auditor's rights.

use std::str::FromStr;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Argument;
use crate::{
    desk::{
        Desk, attention,
        store::{self, Filter},
    },
    journey,
    operations::{Arguments, Refusal, given},
    suite::{SERVICES, Service},
    watch::Board,
};

pub(super) struct Reading {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Attention,
    Orders,
    Journey,
    Audit,
    Actions,
    Metrics,
    Run,
}

pub(super) static READINGS: [Reading; 7] = [
    Reading {
        name: "attention",
        about: "What needs attention now: sagas without progress with the cause that order names, dead letters and parked events of \
            each service, and what is not in order: consumers and relays that are paused or cannot work, breakers that are not \
            closed, services that do not answer.",
        what: What::Attention,
    },
    Reading {
        name: "audit",
        about: "The latest audit: each invariant with its violations, and what was accounted for.",
        what: What::Audit,
    },
    Reading {
        name: "find_orders",
        about: "Orders with their sagas, newest first, 50 on a page: by order, saga, customer or correlation id, or by their saga's \
            state, the step at which it failed, and its age.",
        what: What::Orders,
    },
    Reading {
        name: "order_journey",
        about: "Everything that happened to one order: each step with its event, how long each hop took, the readers of the event, \
            faults that hit it, the states of saga, order, stock and payment after it; what is left; dead letters.",
        what: What::Journey,
    },
    Reading {
        name: "list_actions",
        about: "What operators did, latest first: who, what, why, and how it was answered.",
        what: What::Actions,
    },
    Reading {
        name: "metrics",
        about: "The series of a service's metrics whose names begin so, each summed over the replicas.",
        what: What::Metrics,
    },
    Reading {
        name: "inspect_run",
        about: "A scenario, an audit that settles or a drill that was begun with `run`: who did what with it and why, its state, exit \
            code and output; and which runs there are.",
        what: What::Run,
    },
];

pub(super) fn reading(name: &str) -> Option<&'static Reading> {
    READINGS.iter().find(|reading| reading.name == name)
}

impl Reading {
    pub(super) fn arguments(&self) -> Vec<Argument> {
        match self.what {
            What::Attention | What::Audit | What::Actions => Vec::new(),
            What::Run => vec![Argument::number("id", "The run's id; the latest if left out")],
            What::Journey => vec![Argument::text("order_id", "The order's id", true)],
            What::Metrics => vec![
                Argument::service(),
                Argument::text("prefix", "The beginning of the metrics' names, such as `saga_` or `outbox_`", true),
            ],
            What::Orders => vec![
                Argument::text("q", "An order's, a saga's or a customer's id, or a correlation id", false),
                Argument::text(
                    "saga_status",
                    "STARTED, IN_PROGRESS, COMPLETED, TIMED_OUT, COMPENSATING, COMPENSATED or FAILED",
                    false,
                ),
                Argument::text("failed_at_step", "The step at which the saga failed", false),
                Argument::number("older_than_seconds", "Only sagas that began at least so long ago"),
                Argument::text("before", "`next` of the page before", false),
            ],
        }
    }

    pub(super) async fn answer(&self, desk: &Desk, board: &Board, arguments: &Arguments) -> Result<Value, Refusal> {
        match self.what {
            What::Attention => Ok(json!(attention(desk).await)),
            What::Audit => Ok(board.as_json()),
            What::Run => desk.runs.as_json(parsed(arguments, "id")?),
            What::Orders => orders(desk, arguments).await,
            What::Journey => journey_of(desk, arguments).await,
            What::Actions => {
                let actions = store::actions(&desk.pool).await.map_err(unreadable)?;
                Ok(json!({ "actions": actions }))
            }
            What::Metrics => {
                let service = known(given(arguments, "service"))?;
                Ok(json!(desk.suite.samples(service, given(arguments, "prefix").unwrap_or_default()).await?))
            }
        }
    }
}

fn known(name: Option<&str>) -> Result<Service, Refusal> {
    let known = SERVICES.into_iter().find(|service| Some(service.0) == name);
    known.ok_or_else(|| Refusal::Argument(format!("there is no service {}", name.unwrap_or_default())))
}

async fn orders(desk: &Desk, arguments: &Arguments) -> Result<Value, Refusal> {
    if arguments.values().any(|text| text.contains('\0')) {
        return Err(Refusal::Argument("no text of the database holds a NUL".to_owned()));
    }
    let q = given(arguments, "q");
    let filter = Filter {
        id: q.and_then(|q| q.parse().ok()),
        name: q,
        saga_status: given(arguments, "saga_status"),
        failed_at_step: given(arguments, "failed_at_step"),
        older_than: parsed::<u32>(arguments, "older_than_seconds")?.map(f64::from),
        before: parsed(arguments, "before")?,
    };
    let found = store::find(&desk.pool, &filter).await.map_err(unreadable)?;
    Ok(json!({ "orders": found.rows, "next": found.next }))
}

async fn journey_of(desk: &Desk, arguments: &Arguments) -> Result<Value, Refusal> {
    let order_id = parsed::<Uuid>(arguments, "order_id")?.unwrap_or_default();
    let journey = journey::find(&desk.pool, order_id).await.map_err(unreadable)?;
    let journey = journey.ok_or_else(|| Refusal::Argument(format!("there is no order {order_id}")))?;
    Ok(json!(journey))
}

pub(super) fn parsed<T: FromStr>(arguments: &Arguments, name: &str) -> Result<Option<T>, Refusal> {
    let parse = |text: &str| text.parse().map_err(|_| Refusal::Argument(format!("{name} must not be {text:?}")));
    given(arguments, name).map(parse).transpose()
}

fn unreadable(error: sqlx::Error) -> Refusal {
    tracing::warn!(%error, "a tool cannot read the database");
    Refusal::Unreadable
}
