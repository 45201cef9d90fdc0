//! The real programs, killed and frozen.

use std::process::Command;

use testkit::{Process, Signal, bin, free_port};

use crate::prelude::*;

#[suite_tests::test]
async fn each_service_killed_under_load_loses_no_order() -> Test {
    let suite = TestSuite::new().await?;
    let mut running = Running::participants(&suite, &[]).await?;
    let mut placed = 0;
    for (place, service) in [ORDER, INVENTORY, PAYMENT].into_iter().enumerate() {
        for n in 0..60 {
            let (client, key) = (&running[0].client, format!("{service}-{n}"));
            client.place_until_accepted(&key, &order_of(&[("A", 1)], "tok_visa")).await?;
            placed += 1;
            if n == 20 {
                running[place].process.kill();
                if service == ORDER {
                    running[place] = Running::start(&suite, service, &[]).await?;
                }
            }
        }
        if service != ORDER {
            running[place] = Running::start(&suite, service, &[]).await?;
        }
    }
    suite.all_confirmed(placed).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_relay_frozen_past_its_lease_breaks_no_order() -> Test {
    let suite = TestSuite::new().await?;
    let [mut first, _inventory, _payment] = Running::participants(&suite, &[]).await?;
    let second = Running::start(&suite, ORDER, &[]).await?;
    let epoch =
        async || Ok::<_, anyhow::Error>(second.client.get("/api/admin/relay").await?.expect(200)?["epoch"].as_i64());
    let before = epoch().await?;
    let client = second.client.clone();
    let load = tokio::spawn(async move { client.order_many_until_accepted(300).await });
    let published = async || suite.number("select count(*) from orders.outbox_published").await;
    eventually(async || published().await.is_ok_and(|n| n > 30)).await?;
    first.process.pause()?;
    eventually(async || epoch().await.is_ok_and(|now| now > before)).await?;
    let taken_over = published().await?;
    eventually(async || published().await.is_ok_and(|n| n > taken_over + 30)).await?;
    first.process.resume()?;
    load.await??;
    suite.all_confirmed(300).await?;
    first.ready().await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_service_without_its_servers_is_not_ready_and_gives_up() -> Test {
    let address = format!("127.0.0.1:{}", free_port());
    let nowhere = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(bin("order")?);
    command
        .env("LISTEN", &address)
        .env("DATABASE_URL", format!("postgres://order_service@{nowhere}/suite"))
        .env("NATS_URL", format!("nats://{nowhere}"))
        .env("DATABASE_STARTUP_LIMIT", "4s");
    let mut process = Process::start(&mut command)?;
    let client = Client::new(&format!("http://{address}"));
    eventually(async || client.get("/health/live").await.is_ok_and(|a| a.status == 200)).await?;
    ensure!(client.get("/health/ready").await?.status == 503);
    let refused = client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?;
    ensure!(refused.status == 503 && refused.header("retry-after").is_some(), "{refused:?}");
    eventually(async || !process.is_running()).await?;
    let log = process.log();
    let lines = log.lines().filter(|line| line.contains("PostgreSQL at")).count();
    ensure!((3..=7).contains(&lines), "one line a second, not {lines}:\n{log}");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_stopping_service_finishes_its_work_first() -> Test {
    let suite = TestSuite::new().await?;
    for service in [ORDER, INVENTORY, PAYMENT] {
        let mut running = Running::start(&suite, service, &[]).await?;
        let status = running.process.stop(Signal::Term, Duration::from_secs(15)).await?;
        ensure!(status.success(), "{service}: {status}\n{}", running.process.log());
    }
    ensure!(suite.number("select count(*) from orders.relay_lease where expires_at < now()").await? == 1);
    Ok(())
}
