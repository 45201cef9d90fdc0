use std::time::Duration;

use async_nats::jetstream;
use testkit::Nats;

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
async fn a_frozen_server_answers_when_it_thaws() {
    let mut nats = with_one_message().await;
    let context = context(&nats).await;
    nats.pause().unwrap();
    let asking = context.get_stream("S");
    assert!(tokio::time::timeout(Duration::from_millis(200), asking).await.is_err());
    nats.resume().unwrap();
    assert_eq!(stored(&nats).await, Some(1));
}

#[tokio::test]
async fn a_configuration_file_sets_users_and_reads_variables() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf");
    std::fs::write(&config, "authorization { users = [{ user: order, password: $ORDER_NATS_PASSWORD }] }").unwrap();
    let nats = Nats::with_config(&config, &[("ORDER_NATS_PASSWORD", "secret")]).await.unwrap();
    assert!(async_nats::connect(nats.url()).await.is_err());
    let options = async_nats::ConnectOptions::with_user_and_password("order".into(), "secret".into());
    options.connect(nats.url()).await.unwrap();
}
