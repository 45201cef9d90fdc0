use std::time::Duration;

use async_nats::jetstream;
use testkit::{Nats, eventually};

async fn context(nats: &Nats) -> jetstream::Context {
    jetstream::new(async_nats::connect(nats.url()).await.unwrap())
}

async fn stored(nats: &Nats) -> Option<u64> {
    let mut stream = context(nats).await.get_stream("S").await.ok()?;
    Some(stream.info().await.unwrap().state.messages)
}

async fn with_one_message() -> Nats {
    let nats = Nats::start().await.unwrap();
    let context = context(&nats).await;
    let config = jetstream::stream::Config { name: "S".into(), subjects: vec!["s".into()], ..Default::default() };
    context.create_stream(config).await.unwrap();
    context.publish("s", "hello".into()).await.unwrap().await.unwrap();
    nats
}

#[tokio::test]
async fn a_restart_keeps_the_streams() {
    let mut nats = with_one_message().await;
    nats.restart().await.unwrap();
    assert_eq!(stored(&nats).await, Some(1));
}

#[tokio::test]
async fn a_crash_keeps_the_streams() {
    let mut nats = with_one_message().await;
    nats.kill();
    nats.start_again().await.unwrap();
    assert_eq!(stored(&nats).await, Some(1));
}

#[tokio::test]
async fn a_wipe_loses_the_streams() {
    let mut nats = with_one_message().await;
    nats.wipe().await.unwrap();
    assert_eq!(stored(&nats).await, None);
}

#[tokio::test]
async fn a_frozen_server_answers_after_it_resumes() {
    let mut nats = with_one_message().await;
    let context = context(&nats).await;
    nats.pause().unwrap();
    let asking = context.get_stream("S");
    assert!(tokio::time::timeout(Duration::from_millis(200), asking).await.is_err());
    nats.resume().unwrap();
    assert_eq!(stored(&nats).await, Some(1));
}

#[tokio::test]
async fn a_configuration_file_sets_users_and_is_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf");
    let write = |user: &str| {
        let users = format!("users = [{{ user: {user}, password: $NATS_PASSWORD }}]");
        std::fs::write(&config, format!("jetstream {{ store_dir: $NATS_STORE_DIR }}\nauthorization {{ {users} }}\n"))
    };
    write("order").unwrap();
    let mut nats = Nats::with_config(&config, &[("NATS_PASSWORD", "secret")]).await.unwrap();
    let url = nats.url();
    assert!(async_nats::connect(&url).await.is_err());
    let log_in = async |user: &str| {
        let options = async_nats::ConnectOptions::with_user_and_password(user.to_owned(), "secret".to_owned());
        options.connect(&url).await
    };
    log_in("order").await.unwrap();
    assert!(log_in("payment").await.is_err());
    write("payment").unwrap();
    nats.reload().unwrap();
    eventually(Duration::from_secs(10), async || log_in("payment").await.map(drop)).await.unwrap();
}
