//! The verdict: the clients' answers compared with the database once the suite is at rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use console::audit;
use contracts::order_fulfillment::{PROCESS_PAYMENT, RESERVE_STOCK};
use serde::Serialize;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    history::{Conduct, Record},
    nemesis::FORGED,
};

/// An order in the database at the end.
#[derive(Debug, Clone, Default, sqlx::FromRow)]
pub struct Ended {
    pub order_id: Uuid,
    pub key: Option<String>,
    pub status: String,
    pub saga_status: Option<String>,
    pub failed_at_step: Option<String>,
    /// Milliseconds since 1970, as the next one.
    pub started_ms: Option<i64>,
    pub deadline_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    /// When its stock was reserved, and when its card was charged.
    pub reserved_ms: Option<i64>,
    pub paid_ms: Option<i64>,
    pub payments: i64,
}

/// Violations by kind.
#[derive(Debug, Default, Serialize)]
pub struct Violations {
    /// Acknowledged, and missing or never ended.
    pub lost: Vec<String>,
    /// More orders or payments than requested.
    pub doubled: Vec<String>,
    /// The answer and the outcome differ.
    pub broken_promises: Vec<String>,
    /// Dead letters of events that were not forged.
    pub dead_letters: Vec<String>,
}

impl Violations {
    pub fn kinds(&self) -> [(&'static str, &Vec<String>); 4] {
        let Violations { lost, doubled, broken_promises, dead_letters } = self;
        [("lost", lost), ("doubled", doubled), ("broken promise", broken_promises), ("dead letter", dead_letters)]
    }
}

pub async fn ended_orders(pool: &PgPool) -> Result<Vec<Ended>, sqlx::Error> {
    sqlx::query_as(
        "select o.order_id, k.key, o.status, s.status as saga_status, s.failed_at_step,
            (extract(epoch from s.started_at) * 1000)::bigint as started_ms,
            (extract(epoch from s.deadline) * 1000)::bigint as deadline_ms,
            (extract(epoch from s.completed_at) * 1000)::bigint as ended_ms,
            done.reserved_ms, done.paid_ms,
            (select count(*) from payment.payment p where p.order_id = o.order_id) as payments
        from orders.customer_order o
        left join orders.idempotency_key k using (order_id)
        left join saga.saga_instance s on s.saga_id = o.saga_id
        left join lateral (
            select (extract(epoch from min(occurred_at) filter (where step = $1)) * 1000)::bigint as reserved_ms,
                (extract(epoch from min(occurred_at) filter (where step = $2)) * 1000)::bigint as paid_ms
            from saga.saga_step j
            where j.saga_id = s.saga_id and j.status = 'COMPLETED'
        ) done on true",
    )
    .bind(RESERVE_STOCK.name)
    .bind(PROCESS_PAYMENT.name)
    .fetch_all(pool)
    .await
}

/// Dead letters of the suite's own events: no nemesis causes one.
pub async fn unexpected_dead_letters(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "select format('%s: %s of %s after %s attempts: %s: %s', service, step, event_type, attempts, reason, left(error_chain, 200))
        from audit.dead_letter
        where coalesce(correlation_id, '') <> $1 and headers::text not like '%' || $1 || '%'",
    )
    .bind(FORGED)
    .fetch_all(pool)
    .await
}

/// Compares the clients' records with the orders of the database.
pub fn compare(records: &[Record], orders: &[Ended]) -> Violations {
    let mut findings = Violations::default();
    let by_id: HashMap<Uuid, &Ended> = orders.iter().map(|order| (order.order_id, order)).collect();
    let mut by_key: HashMap<&str, Vec<&Ended>> = HashMap::new();
    for order in orders {
        match &order.key {
            Some(key) => by_key.entry(key).or_default().push(order),
            None => findings.doubled.push(format!("order {} has no idempotency key", order.order_id)),
        }
        if order.payments > 1 {
            findings.doubled.push(format!("order {} has {} payments", order.order_id, order.payments));
        }
    }
    for record in records {
        judge(record, by_key.remove(record.key.as_str()).unwrap_or_default(), &by_id, &mut findings);
    }
    let keys: HashSet<&str> = records.iter().map(|record| record.key.as_str()).collect();
    for (key, _) in by_key.iter().filter(|(key, _)| !keys.contains(*key)) {
        findings.doubled.push(format!("key {key} has an order, and no client used the key"));
    }
    findings
}

/// The number of orders by their end; for cancelled ones with the step at which the saga failed.
pub fn outcomes(orders: &[Ended]) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    for order in orders {
        let outcome = match &order.failed_at_step {
            Some(step) => format!("{} at {step}", order.status),
            None => order.status.clone(),
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    outcomes
}

/// Orders that had to be confirmed and were cancelled, with their due times.
pub fn cancelled_without_cause<'o>(records: &[Record], orders: &'o [Ended]) -> Vec<(&'o Ended, u64)> {
    let good = records.iter().filter(|record| record.has_to_be_confirmed);
    let good: HashMap<Uuid, u64> =
        good.filter_map(|record| Some((*record.acknowledged.first()?, record.due_ms))).collect();
    let cancelled = orders.iter().filter(|order| order.status == "CANCELLED");
    cancelled.filter_map(|order| Some((order, *good.get(&order.order_id)?))).collect()
}

/// The audit's violations, in sentences.
pub fn violations(report: &audit::Report) -> Vec<String> {
    let found = report.invariants.iter().filter(|verdict| !verdict.ok());
    found
        .map(|verdict| {
            let examples = verdict.examples.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
            format!("{}: {} violations: {examples}", verdict.name, verdict.violations)
        })
        .collect()
}

fn judge(record: &Record, there: Vec<&Ended>, by_id: &HashMap<Uuid, &Ended>, findings: &mut Violations) {
    let key = &record.key;
    if there.len() > 1 || record.acknowledged.len() > 1 {
        findings.doubled.push(format!("key {key} has {} orders, acknowledged {:?}", there.len(), record.acknowledged));
    }
    if let Some(status) = record.refused {
        if record.conduct != Conduct::Errs {
            findings.broken_promises.push(format!("key {key} was refused with {status} without a reason"));
        }
        if !there.is_empty() {
            findings.broken_promises.push(format!("key {key} was refused with {status}, and has an order"));
        }
    }
    if record.conduct == Conduct::Errs && !record.acknowledged.is_empty() {
        findings.broken_promises.push(format!("key {key} orders an unknown product, and was accepted"));
    }
    for order_id in &record.acknowledged {
        let Some(order) = by_id.get(order_id) else {
            findings.lost.push(format!("order {order_id} of key {key} is missing"));
            continue;
        };
        if !matches!(order.status.as_str(), "CONFIRMED" | "CANCELLED") {
            let saga = order.saga_status.as_deref().unwrap_or("missing");
            findings.lost.push(format!("order {order_id} stays {}, its saga {saga}", order.status));
        }
        if record.cancelled && order.status != "CANCELLED" {
            let broken = format!("order {order_id} is {}, although its cancellation was acknowledged", order.status);
            findings.broken_promises.push(broken);
        }
        // Its customer may have cancelled a confirmed order.
        let may_differ = |end: &str| end == "CONFIRMED" && record.wants_to_cancel;
        for end in record.ends.iter().filter(|end| **end != order.status && !may_differ(end)) {
            findings.broken_promises.push(format!("order {order_id} was answered as {end}, and is {}", order.status));
        }
    }
    let unanswered = record.acknowledged.is_empty() && record.refused.is_none();
    if unanswered && record.conduct != Conduct::WalksAway {
        findings.lost.push(format!("key {key} was never answered, in {} requests", record.requests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, order: Option<u128>) -> Record {
        Record {
            key: key.to_owned(),
            acknowledged: order.map(Uuid::from_u128).into_iter().collect(),
            ..Record::default()
        }
    }

    fn ended(key: &str, order: u128) -> Ended {
        Ended {
            order_id: Uuid::from_u128(order),
            key: Some(key.to_owned()),
            status: "CONFIRMED".to_owned(),
            payments: 1,
            ..Ended::default()
        }
    }

    fn counts(records: &[Record], orders: &[Ended]) -> [usize; 3] {
        let found = compare(records, orders);
        [found.lost.len(), found.doubled.len(), found.broken_promises.len()]
    }

    #[test]
    fn an_acknowledged_order_that_exists_once_is_fine() {
        assert_eq!(counts(&[record("a", Some(1))], &[ended("a", 1)]), [0, 0, 0]);
    }

    #[test]
    fn missing_unended_and_unanswered_orders_are_lost() {
        assert_eq!(counts(&[record("a", Some(1))], &[]), [1, 0, 0]);
        let pending = Ended { status: "PENDING".to_owned(), ..ended("a", 1) };
        assert_eq!(counts(&[record("a", Some(1))], &[pending]), [1, 0, 0]);
        assert_eq!(counts(&[record("a", None)], &[]), [1, 0, 0]);
        let away = Record { conduct: Conduct::WalksAway, ..record("a", None) };
        assert_eq!(counts(std::slice::from_ref(&away), &[]), [0, 0, 0]);
        assert_eq!(counts(&[away], &[ended("a", 1)]), [0, 0, 0]);
    }

    #[test]
    fn double_unrequested_and_twice_paid_orders_are_doubled() {
        assert_eq!(counts(&[record("a", Some(1))], &[ended("a", 1), ended("a", 2)]), [0, 1, 0]);
        assert_eq!(counts(&[record("a", Some(1))], &[Ended { payments: 2, ..ended("a", 1) }]), [0, 1, 0]);
        assert_eq!(counts(&[], &[ended("b", 2)]), [0, 1, 0]);
        assert_eq!(counts(&[record("a", Some(1))], &[ended("a", 1), Ended { key: None, ..ended("", 2) }]), [0, 1, 0]);
    }

    #[test]
    fn a_refusal_creates_no_order_and_a_cancellation_holds() {
        let refused = Record { conduct: Conduct::Errs, refused: Some(422), ..record("a", None) };
        assert_eq!(counts(std::slice::from_ref(&refused), &[]), [0, 0, 0]);
        assert_eq!(counts(&[refused], &[ended("a", 1)]), [0, 0, 1]);
        let valid = Record { refused: Some(422), ..record("a", None) };
        assert_eq!(counts(&[valid], &[]), [0, 0, 1]);
        let cancelled = Record { cancelled: true, ..record("a", Some(1)) };
        assert_eq!(counts(&[cancelled], &[ended("a", 1)]), [0, 0, 1]);
    }

    #[test]
    fn an_order_stays_as_it_was_answered() {
        let answered = |end| Record { ends: vec![end], ..record("a", Some(1)) };
        let cancelled = Ended { status: "CANCELLED".to_owned(), ..ended("a", 1) };
        assert_eq!(counts(&[answered("CONFIRMED")], &[ended("a", 1)]), [0, 0, 0]);
        assert_eq!(counts(&[answered("CONFIRMED")], std::slice::from_ref(&cancelled)), [0, 0, 1]);
        assert_eq!(counts(&[answered("CANCELLED")], std::slice::from_ref(&cancelled)), [0, 0, 0]);
        let changed_mind = |end| Record { wants_to_cancel: true, ..answered(end) };
        assert_eq!(counts(&[changed_mind("CONFIRMED")], &[cancelled]), [0, 0, 0]);
        assert_eq!(counts(&[changed_mind("CANCELLED")], &[ended("a", 1)]), [0, 0, 1]);
    }
}
