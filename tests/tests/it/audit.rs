//! Audits a suite under load: orders in flight are reported by name and left out, and every other violation is found.

use console::audit::{Options, Report, Verdict};

use crate::prelude::*;

#[suite_tests::test]
async fn audits_under_load_are_clean_and_find_violations() -> Test {
    let (suite, participants) = TestSuite::selling(1_000, 1_000_000).await?;
    let confirmed = participants.confirmed(&[("A", 1)]).await?;
    let load = async {
        tokio::try_join!(order_for_ever(&participants), order_for_ever(&participants), order_for_ever(&participants))
    };
    tokio::select! {
        ended = load => ended.map(drop),
        judged = judge(&suite, &participants, &confirmed) => judged,
    }?;
    Ok(())
}

/// Orders that are paid, declined, and cancelled before and after their end.
async fn order_for_ever(participants: &Participants) -> Test {
    for n in 0_u64.. {
        let order = participants.place(&[("A", 1)], if n % 7 == 0 { "tok_declined" } else { "tok_visa" }).await?;
        if n % 5 < 2 {
            tokio::time::sleep(Duration::from_millis(n % 5 * 100)).await;
            participants.cancel(&order).await?;
        }
    }
    Ok(())
}

async fn judge(suite: &TestSuite, participants: &Participants, confirmed: &Value) -> Test {
    const AUDITS: usize = 12;
    let patient = Options { settle: Duration::from_secs(30), ..Options::default() };
    let hasty = Options::default();
    let (mut left_out, mut changed) = (0, 0);
    for n in 0..AUDITS {
        let report = suite.report(if n % 3 == 0 { &patient } else { &hasty }).await?;
        ensure!(report.clean, "audit {n}:\n{report}");
        let totals = verdict(&report, "gateway_totals");
        left_out += totals.left_out.len();
        changed += totals.left_out.iter().filter(|named| named.contains("changed during the audit")).count();
    }
    ensure!(left_out >= AUDITS && changed > 0, "nothing moved: {left_out} left out, {changed} of them had changed");

    let gateway = suite.gateway_client();
    let charge = json!({"amount": 1_000, "currency": "EUR", "token": "tok_visa"});
    let request = gateway.request(Method::POST, "/v1/charges").header("idempotency-key", "unknown").json(&charge);
    gateway.send(request).await?.expect(201)?;
    let found = &suite.report(&hasty).await?;
    ensure!(verdict(found, "gateway_totals").examples.iter().any(|found| found.starts_with("EUR")), "{found}");

    let payment = participants.payment_of(confirmed).await?.unwrap_or_default();
    let refund = format!("/v1/charges/{}/refund", payment["gateway_reference"].as_str().unwrap_or_default());
    gateway.post(&refund, &Value::Null).await?.expect(200)?;
    let found = &suite.report(&hasty).await?;
    let refunded = &verdict(found, "gateway_charges").examples;
    ensure!(refunded.len() == 1 && refunded[0].ends_with("but the gateway has refunded it"), "{found}");
    Ok(())
}

#[suite_tests::test]
async fn an_audit_finds_orphaned_sagas_of_both_kinds() -> Test {
    let (suite, participants) = TestSuite::selling(1_000, 10).await?;
    let client = &participants.order.client;
    let twin = client.post("/api/orders/orchestrated", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    let orders = [participants.confirmed(&[("A", 1)]).await?, twin];
    suite.audit().await?;
    suite.execute("update saga.saga_instance set business_key = gen_random_uuid()").await?;
    let found = &suite.report(&Options::default()).await?;
    let orphans = &verdict(found, "no_orphans").examples;
    ensure!(orphans.len() == orders.len(), "{found}");
    for order in &orders {
        let orphan = format!("saga {} (COMPLETED) belongs to no order", order["saga_id"].as_str().unwrap_or_default());
        ensure!(orphans.iter().any(|found| found.starts_with(&orphan)), "{found}");
    }
    Ok(())
}

fn verdict<'a>(report: &'a Report, name: &str) -> &'a Verdict {
    report.invariants.iter().find(|verdict| verdict.name == name).unwrap()
}
