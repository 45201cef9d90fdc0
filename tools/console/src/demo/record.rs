//! The record of a scenario, for its report: steps, notes, claims and the exchanges with the suite.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::suite::Exchange;

/// How many exchanges of the same kind are shown per step.
const SHOWN: usize = 3;

/// Clones share one record.
#[derive(Debug, Clone)]
pub(super) struct Record(Arc<Mutex<Contents>>);

#[derive(Debug)]
pub(super) struct Contents {
    began: Instant,
    /// The URLs of the servers, with their names.
    servers: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
    /// The sagas of the scenario.
    pub(super) sagas: Vec<Uuid>,
}

/// A step and its lines.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) title: String,
    /// After the beginning of the scenario.
    pub(super) at: Duration,
    pub(super) lines: Vec<Line>,
    pub(super) exchanges: Vec<Exchanges>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Note(String),
    Claim { text: String, holds: bool },
}

/// Exchanges with the same method and route, regardless of ids.
#[derive(Debug)]
pub(super) struct Exchanges {
    kind: String,
    pub(super) count: u64,
    /// One per URL; for a repeated query, the last answer.
    pub(super) shown: Vec<Shown>,
}

/// One exchange, without the server's address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) request: String,
    pub(super) body: Option<String>,
    pub(super) answer: String,
    pub(super) took: Duration,
}

impl Record {
    pub(super) fn new(servers: Vec<(String, String)>) -> Self {
        let began = Instant::now();
        Record(Arc::new(Mutex::new(Contents { began, servers, steps: Vec::new(), sagas: Vec::new() })))
    }

    /// From now on exchanges with this URL are recorded as exchanges with `name`.
    pub(super) fn name_server(&self, url: &str, name: &str) {
        self.lock().servers.insert(0, (url.to_owned(), name.to_owned()));
    }

    /// Begins the next step and returns its number.
    pub(super) fn step(&self, title: &str) -> usize {
        let mut contents = self.lock();
        let step = Step { title: title.to_owned(), at: contents.began.elapsed(), lines: vec![], exchanges: vec![] };
        contents.steps.push(step);
        contents.steps.len()
    }

    pub(super) fn line(&self, line: Line) {
        if let Some(step) = self.lock().steps.last_mut() {
            step.lines.push(line);
        }
    }

    pub(super) fn saga(&self, saga_id: Uuid) {
        let mut contents = self.lock();
        if !contents.sagas.contains(&saga_id) {
            contents.sagas.push(saga_id);
        }
    }

    pub(super) fn exchange(&self, exchange: &Exchange) {
        let mut contents = self.lock();
        let shown = Shown::of(exchange, &contents.servers);
        let Some(step) = contents.steps.last_mut() else { return };
        let kind = kind_of(&shown.request);
        let known = step.exchanges.iter().position(|same| same.kind == kind);
        let at = known.unwrap_or_else(|| {
            step.exchanges.push(Exchanges { kind, count: 0, shown: vec![] });
            step.exchanges.len() - 1
        });
        step.exchanges[at].show(shown);
    }

    pub(super) fn failed(&self) -> usize {
        let contents = self.lock();
        let lines = contents.steps.iter().flat_map(|step| &step.lines);
        lines.filter(|line| matches!(line, Line::Claim { holds: false, .. })).count()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.lock().began.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Contents> {
        // A panic between two lines leaves the record incomplete, but consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchanges {
    fn show(&mut self, shown: Shown) {
        self.count += 1;
        let is_repeated = |s: &&mut Shown| s.body.is_none() && s.request == shown.request;
        if let Some(before) = self.shown.iter_mut().find(is_repeated) {
            *before = shown;
        } else if self.shown.len() < SHOWN {
            self.shown.push(shown);
        }
    }
}

impl Shown {
    fn of(exchange: &Exchange, servers: &[(String, String)]) -> Self {
        let Exchange { method, url, body, answer, took } = exchange;
        let named =
            servers.iter().find_map(|(base, name)| Some(format!("{name} {}", url.strip_prefix(base.as_str())?)));
        let answer = match answer {
            Ok((status, body)) if body.is_empty() => status.to_string(),
            Ok((status, body)) => format!("{status} {}", abridged(body)),
            Err(cause) => format!("no answer: {cause}"),
        };
        Shown {
            request: format!("{method} {}", named.as_deref().unwrap_or(url)),
            body: body.as_deref().map(abridged),
            answer,
            took: *took,
        }
    }
}

fn abridged(body: &str) -> String {
    const LIMIT: usize = 600;
    let line = body.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{} …", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}

/// A request without its query, with placeholders for ids and SKUs.
fn kind_of(request: &str) -> String {
    let path = request.split('?').next().unwrap_or(request);
    let is_variable = |part: &str| part.parse::<Uuid>().is_ok() || part.starts_with("DEMO-");
    path.split('/').map(|part| if is_variable(part) { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use reqwest::{Method, StatusCode};

    use super::*;

    fn record() -> Record {
        let record = Record::new(vec![("http://one".to_owned(), "order".to_owned())]);
        record.step("the only one");
        record
    }

    fn exchange(method: Method, path: &str, answer: &str) -> Exchange {
        Exchange {
            body: (method == Method::POST).then(|| "{}".to_owned()),
            method,
            url: format!("http://one{path}"),
            answer: Ok((StatusCode::OK, answer.to_owned())),
            took: Duration::from_millis(7),
        }
    }

    #[test]
    fn a_repeated_query_shows_its_last_answer() {
        let record = record();
        for answer in ["PENDING", "PENDING", "CONFIRMED"] {
            record.exchange(&exchange(Method::GET, "/api/orders/x", answer));
        }
        let contents = record.lock();
        let [same] = &contents.steps[0].exchanges[..] else { panic!("{:?}", contents.steps[0].exchanges) };
        assert_eq!((same.count, same.shown.len()), (3, 1));
        assert_eq!(same.shown[0].answer, "200 OK CONFIRMED");
        assert_eq!(same.shown[0].request, "GET order /api/orders/x");
    }

    #[test]
    fn the_first_of_a_kind_are_shown_and_all_are_counted() {
        let record = record();
        for n in 0..100 {
            record.exchange(&exchange(Method::POST, &format!("/api/orders/{}/cancel", Uuid::from_u128(n)), ""));
        }
        let contents = record.lock();
        let [same] = &contents.steps[0].exchanges[..] else { panic!("{:?}", contents.steps[0].exchanges) };
        assert_eq!((same.count, same.shown.len()), (100, SHOWN));
    }

    #[test]
    fn long_bodies_are_abridged_between_characters() {
        assert_eq!(abridged("{\n  \"a\":  1\n}"), "{ \"a\": 1 }");
        assert_eq!(abridged(&"é".repeat(2_000)).chars().count(), 602);
    }

    #[test]
    fn failed_claims_are_counted() {
        let record = record();
        record.line(Line::Claim { text: "good".to_owned(), holds: true });
        record.line(Line::Claim { text: "bad".to_owned(), holds: false });
        assert_eq!(record.failed(), 1);
    }
}
