//! The scripts on a Docker Compose suite, with a fake `docker` that records its calls.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use crate::prelude::*;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");

/// Answers `docker` and `docker-compose`. A console in a container requests to stop a process, and prints the answer.
const DOCKER: &str = r#"#!/bin/sh
echo "${0##*/} $*" >>"$FOLDER/calls"
case "${0##*/} $*" in
    "docker ps --filter label=com.docker.compose.service=postgres"*) cat "$FOLDER/projects" ;;
    "docker ps"*service=gateway_simulator*"{{.State}}") echo exited ;;
    "docker ps"*service=order*" -q"*) printf 'one\ntwo\n' ;;
    "docker ps"*" -q"*) echo one ;;
    "docker inspect"*Config.Env*) echo NATS_PASSWORD=secret ;;
    "docker inspect"*State.Status*) echo running ;;
    "docker compose run"*"console demo nonsense"*)
        printf 'before\n\0361 order a pizza\n'; read -r answer; echo "answered: $answer" ;;
    "docker compose run"*"console demo"*)
        printf '\0361 service stop nats\n'; read -r answer; echo "answered: $answer"
        printf '\0362 service status gateway_simulator\n'; read -r answer; echo "answered: $answer"
        exit 1 ;;
    *"compose up"*) cat "$FOLDER"/suite/.run/compose-settings.yml >>"$FOLDER/calls" 2>/dev/null ;;
esac
exit 0
"#;

/// A folder with the scripts and the state of a fake machine.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// `projects`: the output of Docker; `SUITE` stands for the folder of the scripts.
    fn with(projects: &str) -> anyhow::Result<Self> {
        let machine = Machine { folder: tempfile::tempdir()? };
        let suite = machine.path("suite");
        let participants = "shared/contracts/participants.tsv";
        fs::create_dir_all(suite.join("shared/contracts"))?;
        fs::copy(format!("{SCRIPTS}/../{participants}"), suite.join(participants))?;
        fs::create_dir_all(suite.join("scripts"))?;
        for entry in fs::read_dir(SCRIPTS)? {
            let path = entry?.path();
            if path.is_file() {
                fs::copy(&path, suite.join("scripts").join(path.file_name().context("a name")?))?;
            }
        }
        fs::create_dir(machine.path("bin"))?;
        for program in ["bin/docker", "bin/docker-compose"] {
            machine.program(program, DOCKER)?;
        }
        let suite = suite.canonicalize()?;
        fs::write(machine.path("projects"), projects.replace("SUITE", &suite.to_string_lossy()))?;
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.path(name), text)?;
        Ok(fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755))?)
    }

    /// A suite of `./scripts/up`, whose processes are running or stopped.
    fn up(&self, running: bool) -> anyhow::Result<()> {
        fs::create_dir_all(self.path("suite/.run"))?;
        fs::write(
            self.path("suite/.run/env"),
            "ORDER_URL=http://o INVENTORY_URL=http://i PAYMENT_URL=http://p GATEWAY_URL=http://g ADMIN_TOKEN=t\n\
             SUITE_POSTGRES=postgres://localhost/suite SUITE_NATS=nats://localhost AUDITOR_DB_PASSWORD=a\n",
        )?;
        let status = if running { "order running, pid 1" } else { "order stopped" };
        self.program("suite/scripts/service", &format!("#!/bin/sh\necho '{status}'\n"))?;
        fs::create_dir(self.path("programs"))?;
        self.program("programs/console", "#!/bin/sh\necho \"local $*\"\n")
    }

    fn run(&self, line: &str, environment: &[(&str, &str)]) -> anyhow::Result<(Output, String)> {
        let mut words = line.split(' ');
        let script = self.path("suite/scripts").join(words.next().context("a script")?);
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH")?);
        let mut command = Command::new(script);
        for name in ["SUITE", "SUITE_RUN_DIR", "COMPOSE_PROJECT_NAME", "COMPOSE_FILE", "DEMO_REPORTS"] {
            command.env_remove(name);
        }
        command.args(words).env("PATH", path).env("FOLDER", self.folder.path()).stdin(std::process::Stdio::null());
        command.env("SUITE_BIN_DIR", self.path("programs"));
        let output = command.envs(environment.iter().copied()).output()?;
        Ok((output, fs::read_to_string(self.path("calls")).unwrap_or_default()))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const ONE: &str =
    "shop|SUITE|2.40.3|SUITE/docker-compose.yml|\nother|/elsewhere|2.40.3|/elsewhere/docker-compose.yml|\n";

#[test]
fn the_compose_project_of_this_folder_is_found() -> Test {
    let (output, calls) = Machine::with(ONE)?.run("audit --settle 1s", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(calls.ends_with("docker compose run --rm --no-deps -T console audit --settle 1s\n"), "{calls}");
    Ok(())
}

#[test]
fn a_project_is_managed_by_the_compose_that_created_it() -> Test {
    let machine = Machine::with("shop|SUITE|1.29.2|docker-compose.yml|\n")?;
    let (output, calls) = machine.run("load --orders 5", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(calls.ends_with("docker-compose run --rm --no-deps -T console load --orders 5\n"), "{calls}");
    Ok(())
}

#[test]
fn a_running_suite_of_up_is_the_default() -> Test {
    let machine = Machine::with(ONE)?;
    machine.up(true)?;
    let (output, calls) = machine.run("audit --json", &[])?;
    ensure!(said(&output) == "local audit --json\n" && calls.is_empty(), "{}{calls}", said(&output));
    let (output, calls) = machine.run("audit --json", &[("SUITE", "compose")])?;
    ensure!(output.status.success() && calls.contains("console audit --json"), "{}{calls}", said(&output));
    Ok(())
}

#[test]
fn compose_is_used_when_the_suite_of_up_is_stopped() -> Test {
    let machine = Machine::with(ONE)?;
    machine.up(false)?;
    let (output, calls) = machine.run("audit --json", &[])?;
    ensure!(calls.contains("console audit --json"), "{}{calls}", said(&output));
    Ok(())
}

#[test]
fn without_a_suite_scripts_explain_how_to_start_one() -> Test {
    for script in ["audit", "load", "demo list"] {
        let (output, _) = Machine::with("other|/elsewhere|2.40.3|x|\n")?.run(script, &[])?;
        let said = said(&output);
        ensure!(!output.status.success() && said.contains("./scripts/up or docker compose up -d --build"), "{said}");
    }
    Ok(())
}

#[test]
fn several_projects_need_a_choice() -> Test {
    let machine = Machine::with("a|SUITE|2.40.3|f|\nb|SUITE|2.40.3|f|\na-without-inbox|SUITE|2.40.3|f|\n")?;
    let (output, _) = machine.run("audit", &[])?;
    ensure!(!output.status.success() && said(&output).contains("chooses one: a b"), "{}", said(&output));
    let (output, calls) = machine.run("audit", &[("COMPOSE_PROJECT_NAME", "b")])?;
    ensure!(output.status.success() && calls.contains("console audit"), "{}", said(&output));
    Ok(())
}

#[test]
fn requests_of_the_console_are_executed_and_answered() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, calls) = machine.run("demo 8", &[])?;
    let said = said(&output);
    ensure!(output.status.code() == Some(1), "the exit code is the console's: {said}");
    ensure!(said.contains("answered: 1 ok") && calls.contains("docker stop -t 30 one\n"), "{said}{calls}");
    ensure!(said.contains("answered: 2 ok gateway_simulator  stopped\n"), "{said}");
    let (output, calls) = machine.run("demo nonsense", &[])?;
    ensure!(self::said(&output).contains("before\nanswered: 1 failed order is no request"), "{}", self::said(&output));
    ensure!(calls.contains("--name shop-demo "), "{calls}");
    Ok(())
}

#[test]
fn new_settings_reach_all_replicas_of_a_service() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, calls) = machine.run("compose restart order SAGA_DEADLINE=4s RESILIENCE=a.open_for=5s", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(calls.contains("docker stop -t 30 one two\ndocker rm -f one two\n"), "{calls}");
    ensure!(calls.contains("docker compose up -d --no-deps --no-build --scale order=2 order\n"), "{calls}");
    let settings = "  order:\n    environment:\n      SAGA_DEADLINE: '4s'\n      RESILIENCE: 'a.open_for=5s'\n";
    ensure!(calls.contains(settings), "{calls}");
    Ok(())
}

#[test]
fn a_server_of_a_cluster_has_three_members() -> Test {
    let machine = Machine::with("shop|SUITE|2.40.3|SUITE/docker-compose.yml,SUITE/docker-compose.cluster.yml|\n")?;
    let (output, calls) = machine.run("compose kill nats", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    for service in ["nats", "nats-b", "nats-c"] {
        ensure!(calls.contains(&format!("label=com.docker.compose.service={service} ")), "{calls}");
    }
    ensure!(calls.matches("docker kill one\n").count() == 3, "{calls}");
    let (output, _) = Machine::with(ONE)?.run("compose kill nats-b", &[])?;
    ensure!(!output.status.success() && said(&output).contains("there is no nats-b"), "{}", said(&output));
    Ok(())
}

#[test]
fn the_project_of_a_counter_proof_is_removed() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, calls) = machine.run("demo --without outbox", &[])?;
    ensure!(!output.status.success(), "the project exists already: {}", said(&output));
    machine.program(
        "bin/docker",
        &DOCKER.replace("\"docker ps\"*\" -q\"*", "\"docker ps -aq\"*) ;;\n    \"docker ps\"*\" -q\"*"),
    )?;
    let (output, calls_before) = machine.run("demo --without outbox", &[])?;
    let calls = calls_before.strip_prefix(&calls).context("a longer list")?;
    ensure!(calls.contains("docker compose up -d --no-build keeper payment inventory order\n"), "{calls}");
    ensure!(calls.contains("console demo --without outbox\n"), "{calls}{}", said(&output));
    ensure!(calls.ends_with("docker compose down --volumes --timeout 5\n"), "{calls}");
    ensure!(!machine.path("suite/.run/without-outbox.yml").exists());
    Ok(())
}
