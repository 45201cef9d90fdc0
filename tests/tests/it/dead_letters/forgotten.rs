//! Dead letters expire; those that are deleted while they are pending are counted.

use messaging::MessagingArgs;

use super::{at_once, make_letters, remove_cause, replay_one};
use crate::prelude::*;

#[suite_tests::test(unaudited = "most dead letters are made up, and deleted as they wait")]
async fn dead_letters_deleted_while_pending_are_counted() -> anyhow::Result<()> {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let letters = make_letters(&suite, &order, 3).await?;
    remove_cause(&suite).await?;
    replay_one(&order, &letters[0]).await?.expect(200)?;
    let settings = MessagingArgs::default();
    let clean = async || {
        let mut conn = order.app.participant().pools.work.acquire().await?;
        run_housekeeping(&mut conn, &settings).await
    };
    suite.execute("update orders.dead_letter set created_at = now() - interval '6 days 23 hours'").await?;
    ensure!(clean().await?.dead_letters_forgotten == 0, "they are kept for seven days");
    suite.execute("update orders.dead_letter set created_at = now() - interval '7 days 1 hour'").await?;
    let round = clean().await?;
    ensure!(round.dead_letters_forgotten == 2 && round.rows_deleted >= 3, "{round:?}");
    ensure!(suite.number("select count(*) from orders.dead_letter").await? == 0);
    Ok(())
}
