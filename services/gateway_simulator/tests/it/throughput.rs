//! How fast durable charges are. Ignored by default, because it measures the machine as well:
//! `cargo test --release -p gateway_simulator -- --ignored --nocapture durable_charges`.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use futures_util::future::join_all;

use crate::support::Lab;

const CALLERS: usize = 128;
const CHARGES: usize = 20_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark"]
async fn more_than_three_thousand_durable_charges_a_second() {
    let lab = Lab::with(|config| config.fsync = true).await;
    let (next, started) = (AtomicUsize::new(0), Instant::now());
    join_all((0..CALLERS).map(async |_| {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= CHARGES {
                return;
            }
            let response = lab.charge(&format!("key-{n}"), "tok_visa", 100).send().await.unwrap();
            assert_eq!(response.status(), 201);
            response.bytes().await.unwrap();
        }
    }))
    .await;
    let rate = CHARGES as f64 / started.elapsed().as_secs_f64();
    let metrics = lab.get("/metrics").await.text().await.unwrap();
    let syncs = metrics.lines().find(|line| line.starts_with("gateway_journal_syncs_total")).unwrap_or_default();
    println!("{rate:.0} charges/s with {CALLERS} callers, {syncs}");
    assert!(rate > 3_000.0);
}
