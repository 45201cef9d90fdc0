//! Each transition is stored before it is acted on: while its storing is held, the next participant is not commanded.

use sqlx::{Postgres, Transaction};
use tokio::time::timeout;

use super::{place, place_many};
use crate::prelude::*;

/// The transitions that a command follows, with an order that has them made, and how often that command has taken effect.
const FOLLOWED: [(&str, &str, &str); 4] = [
    ("create_order", "tok_visa", "select count(*) from inventory.reservation"),
    ("reserve_stock", "tok_visa", "select count(*) from payment.payment"),
    ("cancel_order", "tok_declined", "select count(*) from payment.payment where cancelled_at is not null"),
    ("refund_payment", "tok_declined", "select count(*) from inventory.reservation where status = 'RELEASED'"),
];

/// An entry of the journal waits for whoever holds its step's lock.
const HOLDABLE: &str = "create function saga.wait_for_holder() returns trigger security definer language plpgsql as $$
    begin
        perform pg_advisory_xact_lock_shared(8, hashtext(new.step));
        return new;
    end $$;
    create trigger held before insert on saga.saga_step for each row execute function saga.wait_for_holder()";

/// How many transactions wait for such a lock.
const WAITING: &str = "select count(*) from pg_locks
    where locktype = 'advisory' and classid = 8 and not granted
        and database = (select oid from pg_database where datname = current_database())";

/// Has no transition of this step stored until the transaction ends.
async fn hold(suite: &TestSuite, step: &str) -> anyhow::Result<Transaction<'static, Postgres>> {
    let mut holder = suite.pool.begin().await?;
    sqlx::query("select pg_advisory_xact_lock(8, hashtext($1))").bind(step).execute(&mut *holder).await?;
    Ok(holder)
}

#[suite_tests::test]
async fn no_command_is_given_before_its_transition_is_stored() -> Test {
    let tuning = Tuning { lock_timeout: Duration::from_secs(10), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 100).await?;
    suite.execute(HOLDABLE).await?;
    for (step, token, taken) in FOLLOWED {
        let before = suite.number(taken).await?;
        let holder = hold(&suite, step).await?;
        let client = participants.order.client.clone();
        let placing = tokio::spawn(async move { place(&client, token).await });
        suite.becomes(WAITING, 1).await?;
        ensure!(suite.number(taken).await? == before, "{step} is not stored, and the next step is taken");
        holder.rollback().await?;
        placing.await??.expect(if token == "tok_visa" { 201 } else { 409 })?;
        suite.all_ended().await?;
        ensure!(suite.number(taken).await? == before + 1, "after {step} the next step is taken once");
    }
    suite.audit().await
}

#[suite_tests::test]
async fn a_saga_is_driven_at_once_although_its_customer_has_hung_up() -> Test {
    let tuning = Tuning { lock_timeout: Duration::from_secs(10), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 100).await?;
    suite.execute(HOLDABLE).await?;
    let holder = hold(&suite, "create_order").await?;
    let client = participants.order.client.clone();
    let placing = tokio::spawn(async move { place(&client, "tok_visa").await });
    suite.becomes(WAITING, 1).await?;
    placing.abort();
    ensure!(placing.await.is_err_and(|end| end.is_cancelled()), "it was answered");
    // The service knows that its customer is gone when it has answered on a later connection.
    participants.order.client.get("/health/live").await?.expect(200)?;
    holder.rollback().await?;
    suite.becomes("select count(*) from saga.saga_instance where status = 'COMPLETED'", 1).await?;
    let taken_over = Scrape::of(&participants.order.client).await?.sum("coordinator_taken_over_total", &[]);
    ensure!(taken_over == Some(0.0), "it was left until its first step's limit: {taken_over:?}");
    suite.audit().await
}

/// Sagas that wait for a lock, more of them than the service has connections.
#[suite_tests::test]
async fn many_sagas_leave_connections_to_other_work_and_more_are_refused() -> Test {
    let tuning = Tuning { lock_timeout: Duration::from_secs(30), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1_000).await?;
    suite.execute(HOLDABLE).await?;
    let holder = hold(&suite, "process_payment").await?;
    let mut placing = place_many(&participants.order.client, 20);
    suite.becomes(WAITING, 4).await?;
    // Until then customers hang up, whose orders wait, too.
    let refused = eventually(async || {
        timeout(Duration::from_millis(500), place(&participants.order.client, "tok_visa")).await.ok().transpose()
    })
    .await?;
    ensure!(refused.header("retry-after").is_some(), "{refused:?}");
    refused.expect(503)?;
    suite.becomes(WAITING, 4).await?;
    // Its consumer learns of a product, and another order is placed.
    participants.sell("B", 100, 10).await?;
    participants.place(&[("B", 1)], "tok_visa").await?;
    holder.rollback().await?;
    while let Some(placed) = placing.join_next().await {
        placed??.expect(201)?;
    }
    suite.all_ended().await?;
    suite.audit().await
}

/// A participant does not answer, to more sagas than may command it at a time.
#[suite_tests::test]
async fn few_commands_are_on_their_way_and_more_orders_are_refused() -> Test {
    // No attempt ends, so no breaker opens.
    let tuning = Tuning { resilience: "reserve_stock.time_limit=5m", ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 1_000).await?;
    let client = &participants.order.client;
    let away = json!({"point": "participant_call", "kind": "hang", "scope": {"step": "reserve_stock"}});
    let away = participants.order.arm(&away).await?;
    let mut placing = place_many(client, 9);
    let waiting = async || Scrape::of(client).await.map(|now| now.sum("coordinator_waiting", &[]));
    eventually(async || waiting().await.is_ok_and(|waiting| waiting == Some(1.0))).await?;
    let refused = async || {
        let placed = timeout(Duration::from_millis(500), place(client, "tok_visa")).await.ok().transpose();
        placed.map(|answer| answer.filter(|answer| answer.status == 503))
    };
    eventually(refused).await?;
    client.delete(&format!("/api/admin/faults/{away}"), &json!({})).await?.expect(200)?;
    while let Some(placed) = placing.join_next().await {
        placed??.expect(201)?;
    }
    suite.all_ended().await?;
    suite.audit().await
}
