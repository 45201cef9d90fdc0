//! The gateway's books against payment's: in total, and key by key for the latest payments.
//!
//! Neither stands still while orders are placed, so what moves is left out on both sides, by name: payments of orders in
//! flight, and whatever has changed at the gateway between a position of its ledger from before the snapshot and its
//! answer. All else is at the gateway as it was at the snapshot's moment.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError, Verdict, Violations,
    ledger::{self, CurrencyTotal, Payment},
    options::Reach,
};
use crate::suite::{self, Charge, GatewayTotal, Reconciliation, Statement, SuiteError};

/// The gateway, and where its ledger stood when it was first asked.
pub(super) struct Gateway {
    http: suite::Http,
    url: String,
    since: u64,
}

impl Gateway {
    /// To be made before the snapshot.
    pub(super) async fn new(url: &str) -> Result<Self, AuditError> {
        let http = suite::Http::new().map_err(|source| SuiteError::Unreachable { request: url.to_owned(), source })?;
        let mut gateway = Gateway { http, url: url.to_owned(), since: 0 };
        gateway.since = gateway.reconcile(&Reconciliation::default()).await?.position;
        Ok(gateway)
    }

    /// The gateway may be flaky on purpose.
    async fn reconcile(&self, asked: &Reconciliation) -> Result<Statement, SuiteError> {
        const TRIES: usize = 5;
        for _ in 1..TRIES {
            match suite::reconcile(&self.http, &self.url, asked).await {
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(100)).await,
                answer => return answer,
            }
        }
        suite::reconcile(&self.http, &self.url, asked).await
    }
}

/// Compares the books as the connection's transaction sees payment's. `left_out` names the orders in flight.
pub(super) async fn compare(
    snapshot: &mut PgConnection,
    gateway: &Gateway,
    in_flight: &[Uuid],
    left_out: &[String],
    reach: Reach,
) -> Result<[Verdict; 2], AuditError> {
    let mut latest = ledger::latest(snapshot, in_flight, reach).await?;
    let mut without = ledger::payments_of(snapshot, in_flight).await?;
    let keys = latest.iter().map(|payment| payment.payment_id).collect();
    let asked = Reconciliation { since: Some(gateway.since), without: without.clone(), keys };
    let Statement { totals, changed, outcomes, .. } = gateway.reconcile(&asked).await?;
    let changed: HashSet<String> = changed.into_iter().map(|charge| charge.idempotency_key).collect();
    without.extend(changed.iter().filter_map(|key| key.parse::<Uuid>().ok()));
    let ours = ledger::totals(snapshot, &without).await?;
    latest.retain(|payment| !changed.contains(&payment.payment_id.to_string()));
    let mut left_out = left_out.to_vec();
    left_out.extend(changed.iter().map(|key| format!("charge {key} has changed meanwhile")));
    Ok([
        Verdict::new(
            "gateway_totals",
            "In every currency the gateway has charged and refunded as often as payment says, and keeps as much.",
            compare_totals(&totals, &ours),
        )
        .without(&left_out),
        Verdict::new(
            "gateway_charges",
            "For each payment (of the latest) the gateway holds what payment says, and nothing else.",
            compare_charges(&latest, outcomes),
        )
        .without(&left_out),
    ])
}

fn compare_charges(payments: &[Payment], outcomes: Vec<Charge>) -> Violations {
    let charged = outcomes.into_iter().filter(|charge| charge.charge_id.is_some());
    let charges: HashMap<String, Charge> = charged.map(|charge| (charge.idempotency_key.clone(), charge)).collect();
    payments.iter().filter_map(|payment| disagreement(payment, charges.get(&payment.payment_id.to_string()))).collect()
}

fn compare_totals(gateway: &[GatewayTotal], ours: &[CurrencyTotal]) -> Violations {
    // Per currency: kept, charges, refunds; theirs and ours.
    let mut books: BTreeMap<&str, [(i64, i64, i64); 2]> = BTreeMap::new();
    for total in gateway {
        books.entry(&total.currency).or_default()[0] = (total.charged - total.refunded, total.charges, total.refunds);
    }
    for total in ours {
        books.entry(&total.currency).or_default()[1] = (total.kept, total.charges, total.refunds);
    }
    let unequal = books.into_iter().filter(|(_, [theirs, ours])| theirs != ours);
    unequal
        .map(|(currency, [theirs, ours])| {
            let told = |(kept, charges, refunds)| format!("keeps {kept} of {charges} charges and {refunds} refunds");
            format!("{currency}: the gateway {}, payment {}", told(theirs), told(ours))
        })
        .collect()
}

fn disagreement(payment: &Payment, charge: Option<&Charge>) -> Option<String> {
    let Payment { payment_id, order_id, status, amount, currency, .. } = payment;
    let told = match (status.as_str(), charge) {
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
    Some(format!("payment {payment_id} of order {order_id} is {status} ({amount} {currency}), but the gateway {told}"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

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
    fn each_status_has_the_charge_that_belongs_to_it() {
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
    }

    #[test]
    fn a_currency_in_which_only_refusals_happened_is_no_difference() {
        let refused = CurrencyTotal { currency: "EUR".to_owned(), kept: 0, charges: 0, refunds: 0 };
        assert_eq!(compare_totals(&[], &[refused]).count, 0);
    }
}
