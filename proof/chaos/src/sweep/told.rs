//! What clients were told: their orders are accepted, or cancelled. Whatever crashes, it has to be true in the end, and an
//! order that can be filled and paid is confirmed.

use std::collections::HashSet;

use sqlx::PgPool;
use uuid::Uuid;

use super::load::Wish;

/// The orders of which clients were told something.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// 201, or 200 for a repeat.
    pub(super) accepted: Vec<(Uuid, Wish)>,
    pub(super) cancelled: Vec<Uuid>,
}

impl Told {
    pub(super) fn add(&mut self, more: Told) {
        self.accepted.extend(more.accepted);
        self.cancelled.extend(more.cancelled);
    }

    /// What is not as it was told, once everything has settled.
    pub(super) async fn broken_promises(&self, pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
        let (ids, wishes): (Vec<Uuid>, Vec<Wish>) = self.accepted.iter().copied().unzip();
        let found: Vec<Option<String>> = sqlx::query_scalar(
            "select o.status
            from unnest($1::uuid[]) with ordinality as told (order_id, place)
            left join orders.customer_order o using (order_id)
            order by place",
        )
        .bind(&ids)
        .fetch_all(pool)
        .await?;
        let cancelled: HashSet<Uuid> = self.cancelled.iter().copied().collect();
        let broken = |((order_id, status), wish): ((&Uuid, Option<String>), Wish)| {
            let promise = broken_promise(status.as_deref(), wish, cancelled.contains(order_id))?;
            Some(format!("order {order_id} {promise}"))
        };
        Ok(ids.iter().zip(found).zip(wishes).filter_map(broken).collect())
    }
}

fn broken_promise(status: Option<&str>, wish: Wish, told_cancelled: bool) -> Option<String> {
    let may_be = |end| match wish {
        _ if told_cancelled => end == "CANCELLED",
        Wish::TooMuch | Wish::Declined => end == "CANCELLED",
        // What comes after the deadline may still come before anybody has noticed it.
        Wish::Slow => true,
        Wish::Plain | Wish::Flaky | Wish::Hasty | Wish::Regretted => end == "CONFIRMED",
    };
    match status {
        None => Some("was accepted and is not there".to_owned()),
        Some(end @ ("CONFIRMED" | "CANCELLED")) if may_be(end) => None,
        Some("CONFIRMED") if told_cancelled => Some("is confirmed and was cancelled, its customer was told".to_owned()),
        Some(end @ ("CONFIRMED" | "CANCELLED")) => Some(format!("({wish:?}) has ended as {end}")),
        Some(status) => Some(format!("was accepted and is {status} for ever")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_order_has_to_be_there_and_at_the_end_that_its_customer_was_told_of() {
        let broken = |status, told_cancelled| broken_promise(status, Wish::Plain, told_cancelled).is_some();
        assert!(broken(None, false) && broken(Some("PENDING"), false) && broken(Some("CONFIRMED"), true));
        assert!(!broken(Some("CONFIRMED"), false) && !broken(Some("CANCELLED"), true));
    }

    #[test]
    fn what_can_be_filled_and_paid_is_confirmed_and_nothing_else_is() {
        let ends_as = |wish, end| broken_promise(Some(end), wish, false).is_none();
        for wish in [Wish::Plain, Wish::Flaky, Wish::Regretted] {
            assert!(ends_as(wish, "CONFIRMED") && !ends_as(wish, "CANCELLED"), "{wish:?}");
        }
        for wish in [Wish::TooMuch, Wish::Declined] {
            assert!(!ends_as(wish, "CONFIRMED") && ends_as(wish, "CANCELLED"), "{wish:?}");
        }
    }
}
