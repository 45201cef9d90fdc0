//! What most tests use.

pub(crate) use std::time::Duration;

pub(crate) use anyhow::{Context as _, ensure};
pub(crate) use contracts::{INVENTORY, ORDER, PAYMENT};
pub(crate) use reqwest::Method;
pub(crate) use serde_json::{Value, json};
pub(crate) use suite_tests::{
    Answer, App, CONFIRMED, Client, Forged, LIMIT, Participants, Replica, Running, Scrape, TestSuite, Tuning,
    eventually, order_of, run_housekeeping,
};
pub(crate) use uuid::Uuid;

/// Tests that are one call each.
macro_rules! cases {
    ($(fn $test:ident() = $call:expr;)*) => {$(
        #[suite_tests::test]
        async fn $test() -> Test {
            $call.await
        }
    )*};
}
pub(crate) use cases;

pub(crate) type Test = anyhow::Result<()>;
