//! The program, as the scripts and the containers start it.

use std::{
    process::{Command, Output},
    time::Duration,
};

use async_nats::jetstream;
use provision::nats_conf;
use testkit::{Database, Nats, Process, Signal, eventually};

use crate::guarded_nats;

const TIMEOUT: Duration = Duration::from_secs(15);

#[tokio::test]
async fn it_creates_everything_and_can_be_repeated() {
    let (database, nats) = (Database::empty().await.unwrap(), guarded_nats().await);
    for _ in 0..2 {
        let output = output(&mut program(&database, &nats));
        assert!(output.status.success(), "{output:?}");
    }
    assert!(has_streams(&nats).await);
}

#[tokio::test]
async fn keep_restores_what_the_broker_loses_until_a_signal() {
    let (database, mut nats) = (Database::empty().await.unwrap(), guarded_nats().await);
    // It must not need the database or its passwords.
    let nowhere = "postgres://127.0.0.1:1/nowhere";
    let mut reconciler = Process::start(program(&database, &nats).env("DATABASE_URL", nowhere).arg("keep")).unwrap();
    eventually(TIMEOUT, async || reconciler.log().contains("everything is ready")).await.unwrap();
    nats.wipe().await.unwrap();
    eventually(TIMEOUT, async || has_streams(&nats).await).await.unwrap();
    assert!(reconciler.log().contains("re-creating them"), "{}", reconciler.log());
    let status = reconciler.stop(Signal::Term, TIMEOUT).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn renew_recreates_empty_streams() {
    let (database, nats) = (Database::empty().await.unwrap(), guarded_nats().await);
    let order = broker(&nats, "order").await.unwrap();
    // The first time there are none.
    for _ in 0..2 {
        let renewed =
            output(program(&database, &nats).env("DATABASE_URL", "postgres://127.0.0.1:1/nowhere").arg("renew"));
        assert!(renewed.status.success() && has_streams(&nats).await, "{renewed:?}");
        let stored = order.publish("events.order.OrderCreated", "{}".into()).await.unwrap().await.unwrap();
        assert_eq!(stored.sequence, 1);
    }
}

#[tokio::test]
async fn it_prints_why_it_failed() {
    let (database, nats) = (Database::empty().await.unwrap(), guarded_nats().await);
    let refused = output(program(&database, &nats).env("NATS_PASSWORD", "wrong"));
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("as provision"), "{refused:?}");

    let unsafe_passwords = output(program(&database, &nats).env("APP_ENV", "production"));
    assert!(!unsafe_passwords.status.success());
    assert!(String::from_utf8_lossy(&unsafe_passwords.stderr).contains("order_service"), "{unsafe_passwords:?}");
}

#[test]
fn it_prints_the_servers_configuration_without_servers() {
    for (arguments, wanted) in
        [(&["nats-conf"][..], nats_conf::render()), (&["nats-conf", "--accounts"], nats_conf::render_accounts())]
    {
        let output = output(Command::new(env!("CARGO_BIN_EXE_provision")).args(arguments));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    }
}

fn program(database: &Database, nats: &Nats) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provision"));
    command.env("DATABASE_URL", database.admin_url()).env("NATS_URL", nats.url());
    command.env("NATS_USER", "provision").env("NATS_PASSWORD", "provision").env("LOG_FORMAT", "text");
    command.env_remove("APP_ENV").env_remove("RUST_LOG");
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

async fn has_streams(nats: &Nats) -> bool {
    let Ok(js) = broker(nats, "provision").await else { return false };
    for service in contracts::SERVICES {
        if js.get_stream(service.stream()).await.is_err() {
            return false;
        }
    }
    true
}

async fn broker(nats: &Nats, user: &str) -> Result<jetstream::Context, async_nats::ConnectError> {
    let options = async_nats::ConnectOptions::with_user_and_password(user.to_owned(), user.to_owned());
    Ok(jetstream::new(options.custom_inbox_prefix(format!("_INBOX_{user}")).connect(nats.url()).await?))
}
