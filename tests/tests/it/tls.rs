//! Encrypted connections, with certificates of the CA that `./scripts/up --cluster` makes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use testkit::{Nats, Postgres, Process, bin, free_port};

use crate::prelude::*;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Runs a part of the cluster's script; what it starts is only named. The members have the default ports.
fn cluster_script(run: &Path, line: &str) -> anyhow::Result<String> {
    let script = format!(
        r#"set -euo pipefail
        declare -A ports=([postgres]=POSTGRES_PORT=15432)
        . scripts/lib.sh
        . scripts/cluster.sh
        for port in ${{ports[*]}}; do declare "$port"; done
        SUITE_CLUSTER=1 SUITE_POSTGRES=private POSTGRES_PASSWORD=secret POSTGRES_DATA=$run/postgres patroni_version=300
        mkdir -p "$POSTGRES_DATA"
        postgres_bin=/usr/bin patroni=(patroni) nats_server=nats-server
        need_postgres() {{ :; }}
        need_patroni() {{ :; }}
        need_nats_of_cluster() {{ :; }}
        await_members() {{ :; }}
        start_process() {{ echo "started $*"; }}
        {line}"#
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(ROOT).env("SUITE_RUN_DIR", run).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// A CA, and a certificate for a server on this machine.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let authority = Authority(tempfile::tempdir()?);
        cluster_script(authority.0.path(), "certify server")?;
        Ok(authority)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("cluster").join(name)
    }
}

/// A program that connects to both servers, and trusts these CAs.
fn program(arguments: &str, postgres: (&Postgres, &Authority), nats: (&Nats, &Authority)) -> anyhow::Result<Command> {
    let mut words = arguments.split(' ');
    let mut command = Command::new(bin(words.next().context("a program")?)?);
    let (port, ca) = (postgres.0.port(), postgres.1.file("ca.crt"));
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={}", ca.display());
    command
        .args(words)
        .env("DATABASE_URL", url)
        .env("NATS_URL", nats.0.url())
        .env("NATS_CA_FILE", nats.1.file("ca.crt"))
        .env("NATS_USER", "anyone")
        .env("NATS_PASSWORD", "secret")
        .env("INVENTORY_URL", "http://127.0.0.1:1")
        .env("GATEWAY_URL", "http://127.0.0.1:1")
        .env("ALLOW_UNSAFE_DURABILITY", "true")
        .env("DATABASE_STARTUP_LIMIT", "0s")
        .env("NATS_STARTUP_LIMIT", "0s");
    Ok(command)
}

async fn last_words(mut command: Command) -> anyhow::Result<String> {
    let mut process = Process::start(&mut command)?;
    eventually(async || !process.is_running()).await?;
    Ok(process.log())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_server_with_a_certificate_of_another_ca_is_refused() -> Test {
    let (ours, other) = (Authority::new()?, Authority::new()?);
    let (certificate, key) = (ours.file("server.crt"), ours.file("server.key"));
    let postgres = Postgres::with_certificate(&certificate, &key).await?;
    let conf = ours.file("nats.conf");
    fs::write(
        &conf,
        format!(
            "jetstream {{ store_dir: $NATS_STORE_DIR }}\ntls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n\
             authorization {{ user: anyone, password: $PASSWORD }}\n"
        ),
    )?;
    let nats = Nats::with_config(&conf, &[("PASSWORD", "secret")]).await?;
    for trusted in [(&other, &ours), (&ours, &other)] {
        for arguments in ["provision", "order", "console audit"] {
            let mut command = program(arguments, (&postgres, trusted.0), (&nats, trusted.1))?;
            command.env("LISTEN", format!("127.0.0.1:{}", free_port()));
            let log = last_words(command).await?;
            ensure!(log.contains("invalid peer certificate: "), "{arguments}: {log}");
        }
    }
    let trusting = |arguments| program(arguments, (&postgres, &ours), (&nats, &ours));
    let log = last_words(trusting("provision")?).await?;
    ensure!(log.contains("everything is ready"), "{log}");
    let address = format!("127.0.0.1:{}", free_port());
    let _order = Process::start(trusting("order")?.env("LISTEN", &address).env("DATABASE_STARTUP_LIMIT", "60s"))?;
    let client = Client::new(&format!("http://{address}"));
    eventually(async || client.get("/health/ready").await.is_ok_and(|answer| answer.status == 200)).await?;
    // It reads both, and then the ledger of a card processor that is not there.
    let log = last_words(trusting("console audit")?).await?;
    ensure!(log.contains("the gateway's ledger cannot be read"), "{log}");
    Ok(())
}

#[test]
fn a_clusters_servers_accept_encrypted_connections_only() -> Test {
    let run = tempfile::tempdir()?;
    let url = cluster_script(run.path(), "start_patroni postgres-a; start_nats_member nats-a; database_url")?;
    let ca = run.path().join("cluster/ca.crt");
    ensure!(url.ends_with(&format!("?sslmode=verify-full&sslrootcert={}", ca.display())), "{url}");
    let written = |name: &str| fs::read_to_string(run.path().join("cluster").join(name));
    let patroni = written("postgres-a.yml")?;
    let rules: Vec<&str> = patroni.lines().filter(|line| line.trim_start().starts_with("pg_hba:")).collect();
    let rules = rules.join(" ").matches("\"host").count() == 2;
    ensure!(rules && patroni.matches("\"hostssl ").count() == 2 && patroni.contains("ssl: \"on\""), "{patroni}");
    ensure!(patroni.matches("sslmode: verify-full").count() == 2, "{patroni}");
    let nats = written("nats-a.conf")?;
    ensure!(nats.contains("\ntls { cert_file:") && nats.contains("\ncluster { tls { cert_file:"), "{nats}");
    for folder in ["cluster", "postgres"] {
        for entry in fs::read_dir(run.path().join(folder))? {
            let entry = entry?;
            let mode = entry.metadata()?.permissions().mode() & 0o777;
            let secret = entry.path().extension().is_some_and(|extension| extension == "key");
            ensure!(!secret || mode == 0o600, "{}: {mode:o}", entry.path().display());
        }
    }
    Ok(())
}
