//! The database's clock was ahead for a while, and what was written then lies an hour ahead: no saga is left alone until then.

use super::{last_order, place, with_payment_away};
use crate::prelude::*;

/// Held where a command is given.
async fn held_at(participants: &Participants, step: &str) -> anyhow::Result<u64> {
    participants.order.arm(&json!({"point": "participant_call", "kind": "hang", "scope": {"step": step}})).await
}

async fn let_go(participants: &Participants, fault: u64) -> Test {
    participants.order.client.delete(&format!("/api/admin/faults/{fault}"), &json!({})).await?.expect(200).map(drop)
}

/// The saga is driven although nobody seems to have to: `left` makes its coordination so while a command is held, after which its
/// driver gives it up.
async fn driven_after(left: &str) -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 10).await?;
    let held = held_at(&participants, "process_payment").await?;
    let client = participants.order.client.clone();
    let placing = tokio::spawn(async move { place(&client, "tok_visa").await });
    suite.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", 1).await?;
    suite.execute(left).await?;
    let_go(&participants, held).await?;
    let order = last_order(&participants.order.client).await?;
    participants.saga_becomes(&order, "COMPLETED").await?;
    placing.await??;
    suite.audit().await
}

cases! {
    fn a_dead_replicas_lease_ahead_is_free() = driven_after(
        "insert into saga.coordinator values ('00000000-0000-7000-8000-000000000001', now() + interval '1 hour');
        update saga.coordination set replica = '00000000-0000-7000-8000-000000000001'",
    );
    fn a_saga_begun_by_a_clock_ahead_is_taken_over() = driven_after(
        "update saga.coordination set replica = null, not_before = now() + interval '1 hour'",
    );
}

/// Payment is away while the saga is undone, and what waits for its next attempt waits by a clock ahead.
#[suite_tests::test]
async fn an_undo_that_waits_by_a_clock_ahead_goes_on() -> Test {
    let (suite, participants, away) = with_payment_away(Duration::from_secs(5)).await?;
    place(&participants.order.client, "tok_visa").await?.expect(409)?;
    suite.becomes("select count(*) from saga.coordination where replica is null", 1).await?;
    let ahead = "update saga.saga_instance set compensation_deadline = compensation_deadline + interval '1 hour';
        update saga.coordination set not_before = not_before + interval '1 hour'";
    suite.execute(ahead).await?;
    suite.becomes("select compensation_attempts::bigint from saga.saga_instance", 1).await?;
    suite.execute(ahead).await?;
    let _payment = Running::at(&suite, PAYMENT, &away).await?;
    let order = last_order(&participants.order.client).await?;
    participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    suite.audit().await
}
