//! Dead letters are not kept for ever; that one was forgotten that still waited for somebody is counted.

use anyhow::ensure;
use contracts::ORDER;
use messaging::MessagingArgs;
use suite_tests::Stage;

use super::{at_once, make_letters, mend, replay_one};

#[suite_tests::test(unaudited = "most dead letters are made up, and deleted as they wait")]
async fn dead_letters_that_are_deleted_while_they_wait_are_counted() -> anyhow::Result<()> {
    let (stage, order) = Stage::alone_with(at_once(), ORDER).await?;
    let letters = make_letters(&stage, &order, 3).await?;
    mend(&stage).await?;
    replay_one(&order, &letters[0]).await?.expect(200)?;
    let settings = MessagingArgs::default();
    let tidy = async || {
        let mut conn = order.app.participant().pools.work.acquire().await?;
        anyhow::Ok(messaging::housekeeping::tidy(&mut conn, &settings).await?)
    };
    let almost = "update orders.dead_letter set created_at = now() - interval '6 days 23 hours'";
    stage.execute(almost).await?;
    ensure!(tidy().await?.dead_letters_forgotten == 0, "they are kept for seven days");
    stage.execute("update orders.dead_letter set created_at = now() - interval '7 days 1 hour'").await?;
    let tidied = tidy().await?;
    ensure!(tidied.dead_letters_forgotten == 2 && tidied.rows_deleted >= 3, "{tidied:?}");
    ensure!(stage.number("select count(*) from orders.dead_letter").await? == 0);
    Ok(())
}
