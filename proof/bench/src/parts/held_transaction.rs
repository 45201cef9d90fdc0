//! Throughput while an idle transaction blocks vacuum, compared by turns with a suite beside it that has no such transaction.

use sqlx::Connection;

use super::{by_turns, ensure_clean, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

const NAMES: [&str; 2] = ["without it", "while it is held"];

pub(super) async fn measure(without: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let held = without.beside("held");
    held.fresh_suite().await?;
    let _scraper = held.scraper().await?;
    let turn = async |variant: usize| [without, &held][variant].a_turn(&[]).await;
    let mut connection = held.superuser().await?;
    let mut transaction = connection.begin_with("begin isolation level repeatable read").await?;
    // With a snapshot and a transaction id it holds back everything that a transaction can hold back.
    let hold = "select pg_current_xact_id(), (select count(*) from saga.saga_instance)";
    sqlx::query(hold).execute(&mut *transaction).await?;
    // More than a minute of load.
    let (during, mut figures) = by_turns(without.rounds(12), NAMES, turn).await?;
    transaction.rollback().await?;
    let at_once = held.a_turn_after(0, &[]).await? / without.a_turn_after(0, &[]).await?;
    let (after, _) = by_turns(without.rounds(5), NAMES, turn).await?;
    ensure_clean(&held, "with a held transaction").await?;
    let [worst_without, worst] = [&during[0], &during[1]].map(|turns| turns.iter().copied().fold(f64::MAX, f64::min));
    figures.extend([
        Figure::new("sagas, without it, in the worst five seconds", worst_without, "1/s"),
        Figure::new("sagas, while it is held, in the worst five seconds", worst, "1/s"),
        ratio("held / without", &during[1], &during[0]).at_least(0.8),
        // Of two minima: the worst turn of twelve is slow without the transaction, too.
        Figure::new("worst five seconds / worst without", worst / worst_without, "").at_least(0.85),
        Figure::new("first five seconds after it / without", at_once, "").at_least(0.8),
        ratio("after it / without", &after[1], &after[0]).at_least(0.8),
    ]);
    Ok(figures)
}
