//! The gateway's books against payment's: in total, and key by key for the latest payments.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use uuid::Uuid;

use super::{
    AuditError, Verdict, Violations,
    ledger::{CurrencyTotal, Ledger, Payment},
};
use crate::suite::{self, Charge, GatewayTotal, SuiteError};

/// How many keys are looked up at the same time.
const PARALLEL: usize = 16;

/// What the gateway's books say.
pub(super) struct Books {
    totals: Vec<GatewayTotal>,
    /// By payment; `None` when nothing went through.
    charges: HashMap<Uuid, Option<Charge>>,
}

/// The gateway's totals, and what it holds for each of the payments.
pub(super) async fn read(gateway_url: &str, payments: &[Payment]) -> Result<Books, AuditError> {
    let http =
        suite::Http::new().map_err(|source| SuiteError::Unreachable { request: gateway_url.to_owned(), source })?;
    let totals = patiently(async || suite::gateway_totals(&http, gateway_url).await).await?;
    let charges = stream::iter(payments)
        .map(|payment| {
            let http = &http;
            async move {
                let key = payment.payment_id.to_string();
                let charge = patiently(async || suite::charge(http, gateway_url, &key).await).await?;
                Ok::<_, SuiteError>((payment.payment_id, charge))
            }
        })
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    Ok(Books { totals, charges })
}

impl Books {
    /// Whether the gateway's totals are payment's.
    pub(super) fn totals(&self, ledger: &Ledger) -> Verdict {
        Verdict::new(
            "gateway_totals",
            "In every currency the gateway has charged and refunded as often as payment says, and keeps as much.",
            compare_totals(&self.totals, &ledger.totals),
        )
    }

    /// Whether the gateway holds what each of these payments says; it was asked for all of them.
    pub(super) fn charges<'a>(&self, payments: impl IntoIterator<Item = &'a Payment>) -> Verdict {
        let charge = |payment: &Payment| self.charges.get(&payment.payment_id).and_then(Option::as_ref);
        Verdict::new(
            "gateway_charges",
            "For each payment (of the latest) the gateway holds what payment says, and nothing else.",
            payments.into_iter().filter_map(|payment| disagreement(payment, charge(payment))).collect(),
        )
    }
}

/// The gateway may be flaky on purpose.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, SuiteError>) -> Result<T, SuiteError> {
    const TRIES: usize = 5;
    for _ in 1..TRIES {
        match ask().await {
            Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
    ask().await
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
        Charge { charge_id, amount: Some(amount), currency: Some("USD".to_owned()), refunded }
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
