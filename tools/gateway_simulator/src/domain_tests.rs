//! Laws of the ledger that the HTTP tests in `tests/it` do not cover.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

fn request(token: &str, amount: i64) -> ChargeRequest {
    ChargeRequest { amount, currency: Currency::USD, token: token.to_owned(), order_id: None, customer_id: None }
}

fn charge(ledger: &mut Ledger, text: &str, token: &str, amount: i64) -> Change<ChargeAnswer> {
    ledger.charge(&key(text), &request(token, amount), Uuid::now_v7(), None).unwrap()
}

#[test]
fn voiding_a_declined_key_keeps_the_decline() {
    let mut ledger = Ledger::default();
    charge(&mut ledger, "k", "tok_expired", 500);
    let void = ledger.void(&key("k"));
    assert!(void.answer == VoidAnswer::Voided && void.entry.is_none());
    assert_eq!(charge(&mut ledger, "k", "tok_expired", 500).answer, declined(&key("k"), DeclineCode::ExpiredCard));
}

#[test]
fn totals_are_per_currency() {
    let mut ledger = Ledger::default();
    charge(&mut ledger, "usd", "tok_visa", 500);
    let euro = ChargeRequest { currency: "EUR".parse().unwrap(), ..request("tok_visa", 700) };
    ledger.charge(&key("eur"), &euro, Uuid::now_v7(), None).unwrap();
    let sums: Vec<_> = ledger.totals().map(|row| (row.currency.to_string(), row.totals.charged)).collect();
    assert_eq!(sums, [("EUR".to_owned(), 700), ("USD".to_owned(), 500)]);
}

#[test]
fn a_contradictory_journal_is_refused() {
    let mut ledger = Ledger::default();
    let charged = charge(&mut Ledger::default(), "k", "tok_visa", 500).entry.unwrap();
    ledger.replay(&charged).unwrap();
    assert!(matches!(ledger.replay(&charged), Err(Inconsistency::ChargeIdTaken(_))));
    let voided = Entry::Voided { idempotency_key: key("k") };
    assert_eq!(ledger.replay(&voided), Err(Inconsistency::SecondOutcome("k".to_owned())));
    let unknown = Uuid::now_v7();
    assert_eq!(ledger.replay(&Entry::Refunded { charge_id: unknown }), Err(Inconsistency::Refund(unknown)));
}

/// Few keys and amounts, so that operations collide.
fn operation() -> impl Strategy<Value = (u8, u8, i64)> {
    (0..4u8, 0..6u8, 1..4i64)
}

proptest! {
    #[test]
    fn replaying_the_entries_rebuilds_the_ledger(operations in prop::collection::vec(operation(), 0..60)) {
        let (mut ledger, mut entries, mut ids) = (Ledger::default(), Vec::new(), Vec::new());
        for (kind, name, amount) in operations {
            let name = format!("key-{name}");
            let token = if amount == 3 { "tok_declined" } else { "tok_visa" };
            let entry = match kind {
                0 | 1 => {
                    let id = Uuid::now_v7();
                    ids.push(id);
                    ledger.charge(&key(&name), &request(token, amount), id, None).ok().and_then(|change| change.entry)
                }
                2 => ids.last().and_then(|id| ledger.refund(*id).ok()).and_then(|change| change.entry),
                _ => ledger.void(&key(&name)).entry,
            };
            entries.extend(entry);
        }
        let mut rebuilt = Ledger::default();
        for entry in &entries {
            let line = serde_json::to_string(entry).unwrap();
            rebuilt.replay(&serde_json::from_str(&line).unwrap()).unwrap();
        }
        prop_assert!(ledger.totals().eq(rebuilt.totals()));
        for name in 0..6 {
            let key = format!("key-{name}");
            prop_assert_eq!(ledger.outcome(&key), rebuilt.outcome(&key));
        }
        let sums = ledger.totals().next().map(|row| row.totals).unwrap_or_default();
        prop_assert!(sums.refunded <= sums.charged && sums.refunds <= sums.charges);
    }
}

#[test]
fn a_statement_leaves_out_named_and_changed_keys() {
    let mut ledger = Ledger::default();
    for (key, token) in [("old", "tok_visa"), ("named", "tok_visa"), ("no", "tok_declined")] {
        charge(&mut ledger, key, token, 500);
    }
    let since = ledger.reconcile(&Reconciliation::default()).unwrap().position;
    let ChargeAnswer::Captured(new) = charge(&mut ledger, "new", "tok_visa", 70).answer else { panic!("declined") };
    ledger.refund(new.charge.charge_id).unwrap();
    charge(&mut ledger, "new", "tok_visa", 70);
    ledger.void(&key("never-charged"));
    let keys = ["no", "unknown"].map(str::to_owned).to_vec();
    let request_body = Reconciliation { since: Some(since), without: vec!["named".to_owned()], keys };
    let statement = ledger.reconcile(&request_body).unwrap();
    assert_eq!((since, statement.position), (3, 6), "a repeated answer is no entry");
    let sums = Totals { charged: 500, charges: 1, declines: 1, ..Totals::default() };
    assert_eq!(statement.totals, [CurrencyTotals { currency: Currency::USD, totals: sums }]);
    let keys = |answers: &[ChargeAnswer]| {
        let key = |answer| serde_json::to_value(answer).unwrap()["idempotency_key"].as_str().unwrap().to_owned();
        let mut keys: Vec<String> = answers.iter().map(key).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&statement.changed), ["never-charged", "new"]);
    assert_eq!(keys(&statement.outcomes), ["no"]);
}
