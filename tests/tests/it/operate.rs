//! `console operate`: an operator's operations from a terminal or a script.

use testkit::bin;

use crate::{mcp::addresses, prelude::*};

/// Exit code, stdout and stderr.
async fn operate(participants: &Participants, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let mut command = tokio::process::Command::from(std::process::Command::new(bin("console")?));
    command.arg("operate").args(addresses(participants)).args(["--actor", "ann"]).args(arguments);
    let done = command.env("ADMIN_TOKEN", "dev-admin-token").output().await?;
    Ok((done.status.code(), String::from_utf8(done.stdout)?, String::from_utf8(done.stderr)?))
}

#[suite_tests::test]
async fn a_parked_event_is_requeued_from_a_terminal() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = &participants.order.client;
    order.act("/api/admin/relay/pause").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    suite.execute("update orders.outbox set state = 'PARKED', attempts = 1").await?;
    let (code, listed, errors) = operate(&participants, &["list_outbox", "service=order", "state=PARKED"]).await?;
    let listed: Value = serde_json::from_str(&listed).with_context(|| errors.clone())?;
    let event_id = listed["items"][0]["event_id"].as_str().context("no parked event")?;
    ensure!(code == Some(0) && errors.is_empty(), "{listed:#} {errors}");

    // What cannot be undone is only shown; what is unknown or missing is refused; the service's refusal is told.
    let event = format!("event_id={event_id}");
    let discard = ["discard_outbox_entry", "service=order", &event, "reason=a test"];
    let (code, shown, errors) = operate(&participants, &discard).await?;
    ensure!(code == Some(1) && shown.contains(event_id) && errors.contains("--yes does it"), "{shown} {errors}");
    for (arguments, why) in [
        (&["requeue_outbox_entry", "service=order", &event][..], "reason is missing"),
        (&["list_outbox", "service=order", "status=PARKED"], "there is no argument status"),
        (&["list_outbox", "service=order", "service=payment"], "service is given twice"),
        (&["requeue_outbox_entry", "service=payment", &event, "reason=a test"], "404"),
    ] {
        let (code, answer, errors) = operate(&participants, arguments).await?;
        ensure!(code == Some(1) && answer.is_empty() && errors.contains(why), "{arguments:?}: {answer} {errors}");
    }
    let (code, _, errors) = operate(&participants, &["requeue"]).await?;
    ensure!(code == Some(2) && errors.contains("there is no operation requeue"), "{errors}");
    let (code, all, _) = operate(&participants, &[]).await?;
    ensure!(code == Some(0) && all.contains("\nlist_outbox service=") && all.contains(" [state=STATE]"), "{all}");

    let requeue = ["requeue_outbox_entry", "service=order", &event, "reason=the limit is higher"];
    let (code, requeued, errors) = operate(&participants, &requeue).await?;
    ensure!(code == Some(0) && requeued.contains("\"PENDING\""), "{requeued} {errors}");
    let (code, _, errors) = operate(&participants, &["resume_relay", "service=order", "reason=a test"]).await?;
    ensure!(code == Some(0), "{errors}");
    participants.saga_becomes(&placed, "COMPLETED").await?;
    let order = format!("id={}", placed["order_id"].as_str().context("no id")?);
    let (code, cancelled, errors) = operate(&participants, &["--yes", "cancel_order", &order, "reason=a test"]).await?;
    ensure!(code == Some(0) && cancelled.contains("\"CANCELLED\""), "{cancelled} {errors}");
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    let recorded: Vec<(String, Option<String>)> =
        sqlx::query_as("select actor, reason from saga.operator_action where actor = 'ann' order by action_id")
            .fetch_all(&suite.pool)
            .await?;
    let because = ["a test", "the limit is higher", "a test", "a test"];
    let expected: Vec<_> = because.map(|reason| ("ann".to_owned(), Some(reason.to_owned()))).into();
    ensure!(recorded == expected, "{recorded:?}");
    suite.audit().await
}
