//! Runs: scenarios, audits and drills that are begun from the console.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use tempfile::TempDir;
use testkit::Signal;

use crate::{
    mcp::{Agent, World, addresses},
    prelude::*,
};

const ADMIN: &str = "dev-admin-token";

/// Stands in for the drill: it asks, and needs half a second to undo what it did.
const DRILL: &str = r#"#!/bin/sh
trap 'sleep 0.5; echo undone; touch "$(dirname "$0")/undone"; exit 3' TERM
echo "orders pile up, said with $*"
echo 'as an error' >&2
printf 'which service? '
read -r answer || exit 4
if [ "$answer" = hint ]; then echo 'it takes cards'; read -r answer || exit 4; fi
echo "it was $answer"
[ "$answer" = payment ]
"#;

/// Stands in for a scenario: it says more than is kept.
const DEMO: &str = "#!/bin/sh\nseq 1 5000\n";

/// A folder of scripts.
pub(crate) fn scripts() -> anyhow::Result<TempDir> {
    let folder = TempDir::new()?;
    for (name, text) in [("drill", DRILL), ("demo", DEMO)] {
        let path = folder.path().join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

/// A console with these scripts.
async fn scripted(scripts: &TempDir) -> anyhow::Result<World> {
    let folder = scripts.path().to_str().context("no UTF-8")?;
    World::with(Tuning::default(), &["--scripts", folder]).await
}

impl Agent {
    async fn latest_run(&mut self) -> anyhow::Result<Value> {
        Ok(self.done("inspect_run", json!({})).await?["run"].clone())
    }

    /// The latest run, when it shows this.
    async fn run_shows(&mut self, words: &str) -> anyhow::Result<Value> {
        eventually(async || {
            let run = self.latest_run().await?;
            ensure!(run["output"].as_str().is_some_and(|output| output.contains(words)), "no {words}: {run:#}");
            anyhow::Ok(Some(run))
        })
        .await
    }

    async fn run_becomes(&mut self, state: &str) -> anyhow::Result<Value> {
        testkit::eventually(Duration::from_secs(150), async || {
            let run = self.latest_run().await?;
            ensure!(run["state"] == state, "{run:#}");
            anyhow::Ok(Some(run))
        })
        .await
    }

    async fn begins(&mut self, kind: &str, argument: Option<u64>) -> anyhow::Result<Value> {
        let mut arguments = json!({"kind": kind, "reason": "a test"});
        if let Some(argument) = argument {
            arguments["argument"] = json!(argument);
        }
        Ok(self.done("run", arguments).await?["id"].clone())
    }

    async fn is_refused(&mut self, tool: &'static str, arguments: Value, why: &str) -> anyhow::Result<()> {
        let (refused, answer) = self.call(tool, arguments).await?;
        let said = answer["refused"].as_str().unwrap_or_default();
        ensure!(refused && said.contains(why), "{answer:#}");
        Ok(())
    }
}

#[suite_tests::test]
async fn an_audit_and_a_scenario_run_without_scripts() -> Test {
    let world = World::new(Tuning::default()).await?;
    let mut operator = world.agent("operates").await?;
    operator.begins("audit", None).await?;
    let run = operator.run_becomes("ended").await?;
    ensure!(run["exit_code"] == 0 && run["output"].as_str().is_some_and(|text| text.contains(", clean (")), "{run:#}");
    ensure!(run["acts"][0]["who"] == "agent" && run["acts"][0]["why"] == "a test", "{run:#}");
    let scenario = json!({"kind": "scenario", "argument": 5, "reason": "a test"});
    operator.is_refused("run", scenario, "role Admin").await?;

    let mut admin = world.agent(ADMIN).await?;
    admin.begins("scenario", Some(5)).await?;
    let run = admin.run_becomes("ended").await?;
    ensure!(run["exit_code"] == 0 && run["output"].as_str().is_some_and(|text| text.contains("PASS")), "{run:#}");
    let stops_payment = json!({"kind": "scenario", "argument": 6, "reason": "a test"});
    admin.is_refused("run", stops_payment, "1 happy path").await?;
    admin.is_refused("run", json!({"kind": "drill", "reason": "a test"}), "./scripts/up").await?;
    ensure!(world.client.get("/runs").await?.body.as_str().is_some_and(|page| page.contains("Audit that settles")));
    world.suite.audit().await
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn a_drill_is_answered_and_no_other_runs_meanwhile() -> Test {
    let scripts = scripts()?;
    let world = scripted(&scripts).await?;
    let mut agent = world.agent(ADMIN).await?;
    let id = agent.begins("drill", Some(7)).await?;
    let run = agent.run_shows("which service? ").await?;
    let output = "orders pile up, said with --seed 7\nas an error\nwhich service? ";
    ensure!(run["output"] == output && run["state"] == "running" && run["exit_code"].is_null(), "{run:#}");
    agent.is_refused("run", json!({"kind": "audit", "reason": "a test"}), "one at a time").await?;
    for text in ["two\nlines", "\u{1b}[31m", &"x".repeat(501)] {
        let answer = json!({"id": id, "text": text, "reason": "a test"});
        agent.is_refused("answer_run", answer, "a line of 1 to 500 characters").await?;
    }
    agent.done("answer_run", json!({"id": id, "text": "payment", "reason": "it is paused"})).await?;
    let run = agent.run_becomes("ended").await?;
    ensure!(run["exit_code"] == 0 && run["output"] == format!("{output}it was payment\n"), "{run:#}");
    ensure!(run["acts"][1]["what"] == "answered: payment" && run["acts"][1]["why"] == "it is paused", "{run:#}");
    agent.is_refused("answer_run", json!({"id": id, "text": "late", "reason": "a test"}), "has ended").await?;
    agent.is_refused("stop_run", json!({"id": 99, "reason": "a test"}), "no run 99").await
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn a_stopped_run_undoes_what_it_did() -> Test {
    let scripts = scripts()?;
    let world = scripted(&scripts).await?;
    let mut agent = world.agent(ADMIN).await?;
    let id = agent.begins("drill", None).await?;
    agent.run_shows("which service? ").await?;
    let mut operator = world.agent("operates").await?;
    operator.done("stop_run", json!({"id": id, "reason": "enough"})).await?;
    let run = operator.run_becomes("stopped").await?;
    ensure!(run["exit_code"] == 3, "{run:#}");
    ensure!(run["output"].as_str().is_some_and(|output| output.ends_with("undone\n")), "{run:#}");
    ensure!(run["acts"][1]["what"] == "stopped" && run["acts"][1]["why"] == "enough", "{run:#}");
    Ok(())
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn the_output_of_a_run_is_bounded() -> Test {
    let scripts = scripts()?;
    let world = scripted(&scripts).await?;
    let mut agent = world.agent(ADMIN).await?;
    for n in 1..=21 {
        agent.begins("scenario", Some(6)).await?;
        let run = agent.run_becomes("ended").await?;
        ensure!(run["id"] == n && run["lines_left_out"] == 3_000, "{}", run["lines_left_out"]);
        ensure!(
            run["output"].as_str().is_some_and(|output| output.starts_with("3001\n") && output.ends_with("5000\n"))
        );
    }
    let kept = agent.done("inspect_run", json!({})).await?["runs"].as_array().map(Vec::len);
    ensure!(kept == Some(20), "{kept:?}");
    agent.is_refused("inspect_run", json!({"id": 1}), "no run 1").await?;
    // A script that is missing.
    agent.begins("audit", None).await?;
    let run = agent.run_becomes("ended").await?;
    ensure!(run["exit_code"].is_null(), "{run:#}");
    agent.run_shows("it could not be started").await.map(drop)
}

/// A form as a browser sends it.
async fn send(world: &World, path: &str, cookie: &str, fields: &[(&str, &str)]) -> anyhow::Result<Answer> {
    let body = fields.iter().map(|(name, value)| format!("{name}={}", value.replace(' ', "+"))).collect::<Vec<_>>();
    let request = world.client.request(Method::POST, path).header("cookie", cookie).body(body.join("&"));
    world.client.send(request.header("content-type", "application/x-www-form-urlencoded")).await
}

/// The session's cookie, and what its forms carry.
async fn log_in(world: &World, token: &str) -> anyhow::Result<(String, String)> {
    let answer = send(world, "/login", "", &[("name", "ann"), ("token", token)]).await?;
    let cookie = answer.header("set-cookie").and_then(|set| set.split(';').next()).context("no cookie")?.to_owned();
    let page = world.client.send(world.client.request(Method::GET, "/runs").header("cookie", &cookie)).await?;
    let page = page.body.as_str().context("no page")?.to_owned();
    let csrf = page.split_once("name=\"csrf\" value=\"").and_then(|(_, rest)| rest.split('"').next());
    Ok((cookie, csrf.context("no form")?.to_owned()))
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn only_a_form_of_ones_session_and_role_begins_a_run() -> Test {
    let scripts = scripts()?;
    let world = scripted(&scripts).await?;
    let drill = [("kind", "drill"), ("argument", ""), ("reason", "a test")];
    ensure!(send(&world, "/runs", "", &drill).await?.status == 401);
    let (cookie, csrf) = log_in(&world, ADMIN).await?;
    ensure!(send(&world, "/runs", &cookie, &drill).await?.status == 403, "without its token");
    let sent = async |cookie: &str, csrf: &str, path: &str, fields: &[(&str, &str)]| {
        send(&world, path, cookie, &[&[("csrf", csrf)], fields].concat()).await
    };
    for (token, allowed) in [("views", 403), ("operates", 403)] {
        let (cookie, csrf) = log_in(&world, token).await?;
        let answer = sent(&cookie, &csrf, "/runs", &drill).await?;
        ensure!(answer.status == allowed, "{token}: {answer:?}");
    }
    let (viewer, viewers) = log_in(&world, "views").await?;
    let audit = [("kind", "audit"), ("reason", "a test")];
    ensure!(sent(&viewer, &viewers, "/runs", &audit).await?.status == 403);
    ensure!(sent(&cookie, &csrf, "/runs", &[("kind", "drill")]).await?.status == 422, "without a reason");
    let begun = sent(&cookie, &csrf, "/runs", &drill).await?;
    ensure!(begun.status == 303 && begun.header("location") == Some("/runs/1"), "{begun:?}");
    let page = world.client.get("/runs/1").await?;
    ensure!(page.body.as_str().is_some_and(|page| page.contains("ann") && !page.contains("/runs/1/stop")), "{page:?}");
    let stop = [("reason", "a test")];
    ensure!(sent(&viewer, &viewers, "/runs/1/stop", &stop).await?.status == 403);
    ensure!(sent(&cookie, "guess", "/runs/1/stop", &stop).await?.status == 403);
    ensure!(sent(&cookie, &csrf, "/runs/1/stop", &stop).await?.status == 303);
    ensure!(sent(&cookie, &csrf, "/runs/99/stop", &stop).await?.status == 404);
    world.agent("views").await?.run_becomes("stopped").await.map(drop)
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn a_console_that_stops_lets_its_run_undo_what_it_did() -> Test {
    let scripts = scripts()?;
    let mut world = scripted(&scripts).await?;
    let mut agent = world.agent(ADMIN).await?;
    agent.begins("drill", None).await?;
    agent.run_shows("which service? ").await?;
    let status = world.process.stop(Signal::Term, Duration::from_secs(20)).await?;
    ensure!(status.success(), "{status}: {}", world.process.log());
    ensure!(scripts.path().join("undone").exists(), "{}", world.process.log());
    Ok(())
}

/// As after a kill -9 of its console.
#[suite_tests::test]
async fn a_scenario_whose_reader_is_gone_undoes_what_it_did() -> Test {
    let (suite, participants) = TestSuite::faulty(Tuning::default(), 100, 1_000).await?;
    let (mut command, reports) = (Running::console(&suite, &["demo", "14"])?, TempDir::new()?);
    command
        .arg("--report")
        .arg(reports.path())
        .args(addresses(&participants))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
    drop((process.stdout.take(), process.stderr.take()));
    let ended = tokio::time::timeout(Duration::from_secs(150), process.wait()).await??;
    ensure!(ended.success(), "{ended}");
    suite.audit().await
}
