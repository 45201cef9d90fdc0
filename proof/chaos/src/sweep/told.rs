//! What clients were told: their orders are accepted, or cancelled. Whatever crashes, it has to be true in the end.

use std::collections::HashSet;

use sqlx::PgPool;
use uuid::Uuid;

/// The orders of which clients were told something.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// 201, or 200 for a repeat.
    pub(super) accepted: Vec<Uuid>,
    pub(super) cancelled: Vec<Uuid>,
}

impl Told {
    pub(super) fn add(&mut self, more: Told) {
        self.accepted.extend(more.accepted);
        self.cancelled.extend(more.cancelled);
    }

    /// What is not as it was told, once everything has settled.
    pub(super) async fn broken_promises(&self, pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
        let found: Vec<(Uuid, Option<String>)> = sqlx::query_as(
            "select told.order_id, o.status
            from unnest($1::uuid[]) as told (order_id)
            left join orders.customer_order o using (order_id)",
        )
        .bind(self.accepted.clone())
        .fetch_all(pool)
        .await?;
        let cancelled: HashSet<Uuid> = self.cancelled.iter().copied().collect();
        let broken = |(order_id, status): (Uuid, Option<String>)| {
            broken_promise(order_id, status.as_deref(), cancelled.contains(&order_id))
        };
        Ok(found.into_iter().filter_map(broken).collect())
    }
}

fn broken_promise(order_id: Uuid, status: Option<&str>, told_cancelled: bool) -> Option<String> {
    match status {
        None => Some(format!("order {order_id} was accepted and is not there")),
        Some("CANCELLED") => None,
        Some("CONFIRMED") if !told_cancelled => None,
        Some("CONFIRMED") => Some(format!("order {order_id} is confirmed and was cancelled, its customer was told")),
        Some(status) => Some(format!("order {order_id} was accepted and is {status} for ever")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_order_has_to_be_there_and_at_the_end_that_its_customer_was_told_of() {
        let broken = |status, told_cancelled| broken_promise(Uuid::nil(), status, told_cancelled).is_some();
        assert!(broken(None, false) && broken(Some("PENDING"), false) && broken(Some("CONFIRMED"), true));
        assert!(!broken(Some("CONFIRMED"), false) && !broken(Some("CANCELLED"), false));
        assert!(!broken(Some("CANCELLED"), true));
    }
}
