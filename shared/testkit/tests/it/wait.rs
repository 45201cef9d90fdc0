use std::{collections::HashSet, time::Duration};

use testkit::{eventually, free_port};

#[tokio::test]
async fn a_wait_ends_with_the_first_positive_answer() {
    let mut calls = 0;
    let found = eventually(Duration::from_secs(5), async || {
        calls += 1;
        (calls == 3).then_some("there")
    });
    assert_eq!(found.await.unwrap(), "there");
    assert_eq!(calls, 3);
}

#[tokio::test]
async fn a_failed_wait_names_its_location_and_the_last_error() {
    let answer = || async { Err::<bool, _>("the door is locked") };
    let error = eventually(Duration::from_millis(30), answer).await.unwrap_err().to_string();
    assert!(error.contains("wait.rs") && error.contains("the door is locked"), "{error}");
}

#[tokio::test]
async fn a_hanging_probe_is_cancelled() {
    let error = eventually(Duration::from_millis(30), std::future::pending::<bool>).await;
    assert!(error.is_err());
}

#[test]
fn ports_are_free_and_never_given_twice() {
    let ports: HashSet<u16> = (0..50).map(|_| free_port()).collect();
    assert_eq!(ports.len(), 50);
}
