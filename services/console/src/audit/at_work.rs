//! An audit of a suite that is at work: of orders in flight it asks only what holds at any moment, and
//! it judges the gateway's books only where they cannot have moved on meanwhile.

use std::collections::HashSet;

use sqlx::Connection;

use super::{
    AuditError, Stores, Verdict, acknowledged, broker, gateway,
    ledger::{self, Payment},
    snapshot::{self, Moment, Reach},
    streams,
};

/// What one audit tells the next: the payments that the gateway has confirmed need not be asked for again.
#[derive(Debug, Default)]
pub struct Memory {
    confirmed: HashSet<Payment>,
}

/// Audits without waiting. An invariant that cannot be judged at this moment has no verdict.
///
/// # Errors
/// When one of the stores cannot be read.
pub async fn audit_at_work(
    stores: &Stores,
    gateway_url: &str,
    memory: &mut Memory,
) -> Result<Vec<Verdict>, AuditError> {
    let broker = broker::connect(stores).await?;
    let mut connection = snapshot::connect(&stores.database_url).await?;
    let floors = acknowledged::floors(&broker).await?;
    let snapshot = snapshot::take(&mut connection, Moment::AtWork, Reach::Latest).await?;
    let mut verdicts = snapshot.verdicts;
    let before = snapshot.ledger;
    let latest: HashSet<&Payment> = before.latest.iter().collect();
    memory.confirmed.retain(|payment| latest.contains(payment));
    let asked: Vec<Payment> = before
        .latest
        .iter()
        .filter(|payment| !before.in_flight.contains(&payment.order_id) && !memory.confirmed.contains(*payment))
        .cloned()
        .collect();
    let books = gateway::read(gateway_url, &asked).await?;
    let after = ledger::read(&mut connection, Reach::Latest).await?;
    connection.close().await?;
    // No saga moved money before, and none does after, and it is the same money: the gateway was asked in peace.
    if before.in_flight.is_empty() && after.in_flight.is_empty() && before.totals == after.totals {
        verdicts.push(books.totals(&before));
    }
    let unmoved: HashSet<&Payment> = after.latest.iter().filter(|p| !after.in_flight.contains(&p.order_id)).collect();
    let charges = books.charges(asked.iter().filter(|payment| unmoved.contains(payment)));
    if charges.ok() {
        memory.confirmed.extend(asked.iter().filter(|payment| unmoved.contains(payment)).cloned());
    }
    verdicts.push(charges);
    verdicts.extend(streams::check(&broker, &snapshot.published, &floors, &snapshot.had, &HashSet::new()).await?);
    Ok(verdicts)
}
