//! The gateway's ledger compared with payment's: the totals, and the latest payments key by key.
//!
//! Both change while orders are placed, so both sides leave out, by name, the payments of orders in flight and the charges
//! that changed between the ledger position read before the snapshot and the gateway's answer. The gateway's other charges are
//! the same as at the snapshot's moment.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{AuditError, Options, Verdict, Violations};
use crate::suite::{self, Charge, GatewayTotal, Reconciliation, Statement, SuiteError};

/// The gateway, and the position of its ledger before the snapshot.
pub(super) struct Gateway {
    http: suite::Http,
    url: String,
    since: u64,
}

impl Gateway {
    /// Call this before the snapshot.
    pub(super) async fn new(url: &str) -> Result<Self, AuditError> {
        let http = suite::Http::new().map_err(|source| SuiteError::Unreachable { request: url.to_owned(), source })?;
        let mut gateway = Gateway { http, url: url.to_owned(), since: 0 };
        gateway.since = gateway.reconcile(&Reconciliation::default()).await?.position;
        Ok(gateway)
    }

    /// Retries: the gateway may have faults armed.
    async fn reconcile(&self, request: &Reconciliation) -> Result<Statement, SuiteError> {
        const TRIES: usize = 5;
        for _ in 1..TRIES {
            match suite::reconcile(&self.http, &self.url, request).await {
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(100)).await,
                answer => return answer,
            }
        }
        suite::reconcile(&self.http, &self.url, request).await
    }
}

/// Payment's totals in one currency; amounts in minor units.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct CurrencyTotal {
    currency: String,
    /// Captured and not refunded.
    kept: i64,
    /// Successful charges, refunded ones included.
    charges: i64,
    refunds: i64,
}

/// One payment; its id is the idempotency key at the gateway.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct Payment {
    payment_id: Uuid,
    order_id: Uuid,
    amount: i64,
    currency: String,
    status: String,
    gateway_reference: Option<String>,
}

/// Compares the ledgers; payment's is read in the connection's transaction. `left_out` names the orders in flight.
pub(super) async fn compare(
    snapshot: &mut PgConnection,
    gateway: &Gateway,
    in_flight: &[Uuid],
    left_out: &[String],
    options: &Options,
) -> Result<[Verdict; 2], AuditError> {
    let mut latest = latest_payments(snapshot, in_flight, options.payments()).await?;
    let mut without = payments_of(snapshot, in_flight).await?;
    let keys = latest.iter().map(|payment| payment.payment_id).collect();
    let request = Reconciliation { since: Some(gateway.since), without: without.clone(), keys };
    let Statement { totals, changed, outcomes, .. } = gateway.reconcile(&request).await?;
    let changed: HashSet<String> = changed.into_iter().map(|charge| charge.idempotency_key).collect();
    without.extend(changed.iter().filter_map(|key| key.parse::<Uuid>().ok()));
    let ours = payment_totals(snapshot, &without).await?;
    latest.retain(|payment| !changed.contains(&payment.payment_id.to_string()));
    let mut left_out = left_out.to_vec();
    left_out.extend(changed.iter().map(|key| format!("charge {key} changed during the audit")));
    Ok([
        Verdict::new(
            "gateway_totals",
            "In every currency the gateway's counts of charges and refunds and its balance equal payment's.",
            compare_totals(&totals, &ours),
        )
        .without(&left_out),
        Verdict::new(
            "gateway_charges",
            "For each of the latest payments the gateway's charge equals payment's record.",
            compare_charges(&latest, outcomes),
        )
        .without(&left_out),
    ])
}

async fn payment_totals(connection: &mut PgConnection, without: &[Uuid]) -> sqlx::Result<Vec<CurrencyTotal>> {
    let query = sqlx::query_as(
        "select currency,
            coalesce(sum(amount) filter (where status = 'CAPTURED'), 0)::bigint as kept,
            count(*) filter (where status in ('CAPTURED', 'REFUNDED')) as charges,
            count(*) filter (where status = 'REFUNDED') as refunds
        from payment.payment
        where payment_id not in (select unnest($1::uuid[]))
        group by currency
        order by currency",
    );
    query.bind(without).fetch_all(connection).await
}

/// The latest payments, newest first, without those of the orders in flight.
async fn latest_payments(
    connection: &mut PgConnection,
    in_flight: &[Uuid],
    most: Option<i64>,
) -> sqlx::Result<Vec<Payment>> {
    let query = sqlx::query_as(
        "select payment_id, order_id, amount, currency, status, gateway_reference
        from payment.payment
        where order_id not in (select unnest($1::uuid[]))
        order by payment_id desc
        limit $2",
    );
    query.bind(in_flight).bind(most).fetch_all(connection).await
}

async fn payments_of(connection: &mut PgConnection, orders: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar("select payment_id from payment.payment where order_id = any($1)")
        .bind(orders)
        .fetch_all(connection)
        .await
}

fn compare_charges(payments: &[Payment], outcomes: Vec<Charge>) -> Violations {
    let charged = outcomes.into_iter().filter(|charge| charge.charge_id.is_some());
    let charges: HashMap<String, Charge> = charged.map(|charge| (charge.idempotency_key.clone(), charge)).collect();
    payments.iter().filter_map(|payment| disagreement(payment, charges.get(&payment.payment_id.to_string()))).collect()
}

fn compare_totals(gateway: &[GatewayTotal], ours: &[CurrencyTotal]) -> Violations {
    // Per currency: kept, charges, refunds; theirs and ours.
    let mut ledgers: BTreeMap<&str, [(i64, i64, i64); 2]> = BTreeMap::new();
    for total in gateway {
        ledgers.entry(&total.currency).or_default()[0] = (total.charged - total.refunded, total.charges, total.refunds);
    }
    for total in ours {
        ledgers.entry(&total.currency).or_default()[1] = (total.kept, total.charges, total.refunds);
    }
    let unequal = ledgers.into_iter().filter(|(_, [theirs, ours])| theirs != ours);
    unequal
        .map(|(currency, [theirs, ours])| {
            let describe =
                |(kept, charges, refunds)| format!("keeps {kept} of {charges} charges and {refunds} refunds");
            format!("{currency}: the gateway {}, payment {}", describe(theirs), describe(ours))
        })
        .collect()
}

fn disagreement(payment: &Payment, charge: Option<&Charge>) -> Option<String> {
    let Payment { payment_id, order_id, status, amount, currency, .. } = payment;
    let difference = match (status.as_str(), charge) {
        ("CAPTURED" | "REFUNDED", None) => "has no charge".to_owned(),
        ("CAPTURED", Some(charge)) if charge.refunded => "has refunded it".to_owned(),
        ("REFUNDED", Some(charge)) if !charge.refunded => "has not refunded it".to_owned(),
        ("CAPTURED" | "REFUNDED", Some(charge)) => {
            let same = charge.charge_id == payment.gateway_reference
                && charge.amount == Some(*amount)
                && charge.currency.as_ref() == Some(currency);
            if same {
                return None;
            }
            format!("has {charge:?}")
        }
        (_, Some(charge)) if !charge.refunded => format!("has charged {}", charge.amount.unwrap_or_default()),
        (_, _) => return None,
    };
    let payment = format!("payment {payment_id} of order {order_id} is {status} ({amount} {currency})");
    Some(format!("{payment}, but the gateway {difference}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(status: &str) -> Payment {
        Payment {
            payment_id: Uuid::nil(),
            order_id: Uuid::nil(),
            amount: 1_999,
            currency: "USD".to_owned(),
            status: status.to_owned(),
            gateway_reference: Some("ch_1".to_owned()),
        }
    }

    fn charge(amount: i64, refunded: bool) -> Charge {
        let charge_id = Some("ch_1".to_owned());
        Charge { charge_id, amount: Some(amount), currency: Some("USD".to_owned()), refunded, ..Charge::default() }
    }

    #[test]
    fn each_payment_status_requires_its_charge() {
        for (status, held, agrees) in [
            ("CAPTURED", Some(charge(1_999, false)), true),
            ("CAPTURED", Some(charge(1_999, true)), false),
            ("CAPTURED", Some(charge(1_998, false)), false),
            ("CAPTURED", None, false),
            ("REFUNDED", Some(charge(1_999, true)), true),
            ("REFUNDED", Some(charge(1_999, false)), false),
            ("REFUNDED", None, false),
            ("DECLINED", None, true),
            ("VOIDED", None, true),
            ("VOIDED", Some(charge(1_999, false)), false),
            ("PENDING", Some(charge(1_999, false)), false),
        ] {
            let found = disagreement(&payment(status), held.as_ref());
            assert_eq!(found.is_none(), agrees, "{status} {held:?}: {found:?}");
        }
    }

    #[test]
    fn a_second_charge_shows_in_the_totals() {
        let theirs =
            |charges, charged| GatewayTotal { currency: "USD".to_owned(), charged, refunded: 0, charges, refunds: 0 };
        let ours = CurrencyTotal { currency: "USD".to_owned(), kept: 100, charges: 1, refunds: 0 };
        let compare = |total| compare_totals(&[total], std::slice::from_ref(&ours)).count;
        assert_eq!(compare(theirs(1, 100)), 0);
        assert_eq!(compare(theirs(2, 200)), 1);
        assert_eq!(compare_totals(&[], &[ours]).count, 1);
        let declined = CurrencyTotal { currency: "EUR".to_owned(), kept: 0, charges: 0, refunds: 0 };
        assert_eq!(compare_totals(&[], &[declined]).count, 0, "a currency with declines only");
    }
}
