//! What is deleted after its retention is counted.

use crate::prelude::*;

#[suite_tests::test(unaudited = "days are made up")]
async fn purged_sagas_and_dropped_partitions_are_counted() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    let Participants { order, inventory, payment, .. } = participants;
    for replica in [order, inventory, payment] {
        replica.stop().await;
    }
    let days_later = "create table payment.inbox_20200101 (like payment.inbox including all);
        alter table payment.inbox attach partition payment.inbox_20200101
            for values from (payment.uuid_v7_floor('2020-01-01Z')) to (payment.uuid_v7_floor('2020-01-02Z'));
        delete from orders.lease; delete from payment.lease;
        alter table saga.saga_step drop constraint saga_step_saga;
        update saga.saga_instance set completed_at = now() - interval '60 days',
            saga_id = orders.uuid_v7_floor(now() - interval '60 days')";
    suite.execute(days_later).await?;
    let (order, payment) = (suite.start(ORDER).await?, suite.start(PAYMENT).await?);
    for (replica, name) in [(&order, "saga_purged_total"), (&payment, "partitions_dropped_total")] {
        let shown = async || Scrape::of(&replica.client).await.is_ok_and(|s| s.sum(name, &[]) == Some(1.0));
        eventually(shown).await.with_context(|| format!("{name} is not 1"))?;
    }
    Ok(())
}
