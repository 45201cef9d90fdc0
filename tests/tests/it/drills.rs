//! Each drill is solved by one reference that does not know which one it plays and has nothing but an operator's tools; and however
//! a drill ends, nothing of its damage is left.

mod solver;
mod undone;

use std::{path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use crate::{mcp::World, prelude::*};

/// A drill that plays.
struct Drill {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

fn command(world: &World, arguments: &[&str]) -> anyhow::Result<std::process::Command> {
    let mut command = Running::console(&world.suite, &[&["drill"], arguments].concat())?;
    command.args(crate::mcp::addresses(&world.participants));
    command.args(["--owner-url", &world.suite.database.admin_url(), "--broker-user", ""]);
    command.env("ADMIN_TOKEN", "dev-admin-token");
    Ok(command)
}

impl Drill {
    fn begin(world: &World, name: &str) -> anyhow::Result<Drill> {
        let (_, seed) = console::drill::seeds().into_iter().find(|(of, _)| *of == name).context("no such drill")?;
        let mut command = command(world, &["--seed", &seed.to_string(), "--rate", "4"])?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Drill { input: child.stdin.take(), child, output, said: Vec::new() })
    }

    /// Reads on until it says this.
    async fn says(&mut self, what: &str) -> anyhow::Result<String> {
        loop {
            let line = self.output.next_line().await?;
            let line = line.with_context(|| format!("it has not said {what:?}: {}", self.said.join("\n")))?;
            self.said.push(line.clone());
            if line.contains(what) {
                return Ok(line);
            }
        }
    }

    async fn answer(&mut self, answer: &str) -> Test {
        let input = self.input.as_mut().context("no stdin")?;
        Ok(input.write_all(format!("{answer}\n").as_bytes()).await?)
    }

    fn signal(&self, signal: &str) -> Test {
        let id = self.child.id().context("it has ended")?.to_string();
        let sent = std::process::Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &id]).status()?;
        ensure!(sent.success(), "it could not be sent {signal}");
        Ok(())
    }

    /// Reads to its end, and returns whether it was solved.
    async fn ends(&mut self) -> anyhow::Result<bool> {
        while let Some(line) = self.output.next_line().await? {
            self.said.push(line);
        }
        Ok(self.child.wait().await?.success())
    }
}

/// Plays the drill with the reference.
async fn solved(name: &str) -> Test {
    let world = World::new(Tuning::default()).await?;
    let mut drill = Drill::begin(&world, name)?;
    drill.says("is wrong in the shop").await?;
    let mut agent = world.agent("dev-admin-token").await?;
    let found = testkit::eventually(Duration::from_secs(100), async || {
        let found = solver::diagnose(&mut agent).await?;
        found.context("nothing is certain yet").map(Some)
    });
    let found = found.await.with_context(|| drill.said.join("\n"))?;
    solver::mend(&mut agent, &found).await?;
    let orders = found.orders.join(" ");
    drill.answer(&format!("{} {} {orders}", found.place, found.cause)).await?;
    drill.says("That is").await?;
    // What the damage has left: a step may be failing for the last time just now.
    let solved = loop {
        tokio::select! {
            solved = drill.ends() => break solved?,
            () = tokio::time::sleep(Duration::from_millis(500)) => solver::tidy_up(&mut agent, found.cause).await?,
        }
    };
    let said = drill.said.join("\n");
    // How fast this machine is does not count here.
    let scored = ["diagnosis 40 of 40", "orders 20 of 20", "audit 20 of 20"].iter().all(|part| said.contains(part));
    ensure!(solved && scored, "{found:?}\n{said}");
    nothing_is_left(&world).await
}

async fn nothing_is_left(world: &World) -> Test {
    let suite = &world.suite;
    ensure!(
        suite.number("select count(*) from pg_namespace where nspname = 'drill'").await? == 0,
        "the schema is left"
    );
    for (table, how) in
        [("relay_lease", "paused or holder = 'payment-0c7d41' and expires_at > now()"), ("paused_consumer", "true")]
    {
        for schema in ["orders", "inventory", "payment"] {
            let left = suite.number(format!("select count(*) from {schema}.{table} where {how}")).await?;
            ensure!(left == 0, "{schema}.{table} is not as before");
        }
    }
    let constraints = "select count(*) from pg_constraint where conname in ('reservation_kept', 'order_open')";
    ensure!(suite.number(constraints).await? == 0, "a constraint is left");
    let triggers = "select count(*) from pg_trigger where tgname = 'drill'";
    ensure!(suite.number(triggers).await? == 0, "a trigger is left");
    let granted =
        "select has_table_privilege('inventory_service', 'inventory.reservation_line', 'insert')::int::bigint";
    ensure!(suite.number(granted).await? == 1, "a permission is missing");
    for stream in ["ORDER", "INVENTORY", "PAYMENT"] {
        let stream = suite.jetstream().await?.get_stream(stream).await?;
        ensure!(stream.cached_info().config.max_bytes > 1_000_000, "a stream is full");
    }
    suite.audit().await
}

cases! {
    fn a_paused_step() = solved("a paused step");
    fn a_paused_compensation() = solved("a paused compensation");
    fn a_paused_relay() = solved("a paused relay");
    fn a_full_stream() = solved("a full stream");
    fn a_relay_whose_lease_a_zombie_holds() = solved("a relay whose lease a zombie holds");
    fn parked_events() = solved("parked events");
    fn lost_events() = solved("lost events");
    fn poisoned_events() = solved("poisoned events");
    fn a_slow_processor() = solved("a slow processor");
    fn a_declining_processor() = solved("a declining processor");
    fn a_failing_processor() = solved("a failing processor");
    fn answers_that_are_lost() = solved("answers that are lost");
    fn a_held_lock() = solved("a held lock");
    fn a_slow_statement() = solved("a slow statement");
    fn a_missing_permission() = solved("a missing permission");
    fn a_stuck_compensation() = solved("a stuck compensation");
    fn confirmations_that_are_refused() = solved("confirmations that are refused");
    fn a_wrong_price() = solved("a wrong price");
    fn reservations_that_are_refused() = solved("reservations that are refused");
    fn rows_that_were_changed() = solved("rows that were changed");
}

#[test]
fn every_drill_has_a_test_above() {
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/drills.rs")).unwrap();
    for (name, _) in console::drill::seeds() {
        assert!(source.contains(&format!("= solved(\"{name}\")")), "{name}");
    }
    assert_eq!(console::drill::seeds().len(), 20);
}
