//! The scripts on a suite of Docker Compose, with a `docker` that writes down what it is asked.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context, ensure};

use crate::Test;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");

/// Answers `docker` and `docker-compose`. A console in a container asks for a process to be stopped, and tells the answer.
const DOCKER: &str = r#"#!/bin/sh
echo "${0##*/} $*" >>"$FOLDER/asked"
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
    *"compose up"*) cat "$FOLDER"/suite/.run/compose-settings.yml >>"$FOLDER/asked" 2>/dev/null ;;
esac
exit 0
"#;

/// A folder with the scripts, and what they believe to run.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// `projects`: what Docker says of them; `SUITE` stands for the folder of the scripts.
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

    /// A suite of `./scripts/up`, whose processes run or do not.
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
        Ok((output, fs::read_to_string(self.path("asked")).unwrap_or_default()))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const ONE: &str =
    "shop|SUITE|2.40.3|SUITE/docker-compose.yml|\nother|/elsewhere|2.40.3|/elsewhere/docker-compose.yml|\n";

#[test]
fn the_compose_project_of_this_folder_is_found() -> Test {
    let (output, asked) = Machine::with(ONE)?.run("audit --settle 1s", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(asked.ends_with("docker compose run --rm --no-deps -T console audit --settle 1s\n"), "{asked}");
    Ok(())
}

#[test]
fn a_project_is_spoken_to_by_the_compose_that_made_it() -> Test {
    let machine = Machine::with("shop|SUITE|1.29.2|docker-compose.yml|\n")?;
    let (output, asked) = machine.run("load --orders 5", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(asked.ends_with("docker-compose run --rm --no-deps -T console load --orders 5\n"), "{asked}");
    Ok(())
}

#[test]
fn a_running_suite_of_up_wins_unless_told_otherwise() -> Test {
    let machine = Machine::with(ONE)?;
    machine.up(true)?;
    let (output, asked) = machine.run("audit --json", &[])?;
    ensure!(said(&output) == "local audit --json\n" && asked.is_empty(), "{}{asked}", said(&output));
    let (output, asked) = machine.run("audit --json", &[("SUITE", "compose")])?;
    ensure!(output.status.success() && asked.contains("console audit --json"), "{}{asked}", said(&output));
    Ok(())
}

#[test]
fn a_stopped_suite_of_up_gives_way_to_compose() -> Test {
    let machine = Machine::with(ONE)?;
    machine.up(false)?;
    let (output, asked) = machine.run("audit --json", &[])?;
    ensure!(asked.contains("console audit --json"), "{}{asked}", said(&output));
    Ok(())
}

#[test]
fn without_a_suite_the_scripts_say_how_to_start_one() -> Test {
    for script in ["audit", "load", "demo list"] {
        let (output, _) = Machine::with("other|/elsewhere|2.40.3|x|\n")?.run(script, &[])?;
        let said = said(&output);
        ensure!(!output.status.success() && said.contains("./scripts/up or docker compose up -d --build"), "{said}");
    }
    Ok(())
}

#[test]
fn of_several_projects_one_has_to_be_chosen() -> Test {
    let machine = Machine::with("a|SUITE|2.40.3|f|\nb|SUITE|2.40.3|f|\na-without-inbox|SUITE|2.40.3|f|\n")?;
    let (output, _) = machine.run("audit", &[])?;
    ensure!(!output.status.success() && said(&output).contains("chooses one: a b"), "{}", said(&output));
    let (output, asked) = machine.run("audit", &[("COMPOSE_PROJECT_NAME", "b")])?;
    ensure!(output.status.success() && asked.contains("console audit"), "{}", said(&output));
    Ok(())
}

#[test]
fn what_the_console_asks_is_done_and_answered() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, asked) = machine.run("demo 8", &[])?;
    let said = said(&output);
    ensure!(output.status.code() == Some(1), "the console's own verdict counts: {said}");
    ensure!(said.contains("answered: 1 ok") && asked.contains("docker stop -t 30 one\n"), "{said}{asked}");
    ensure!(said.contains("answered: 2 ok gateway_simulator  stopped\n"), "{said}");
    let (output, asked) = machine.run("demo nonsense", &[])?;
    ensure!(self::said(&output).contains("before\nanswered: 1 failed order is no question"), "{}", self::said(&output));
    ensure!(asked.contains("--name shop-demo "), "{asked}");
    Ok(())
}

#[test]
fn settings_go_to_all_replicas_of_a_service_made_anew() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, asked) = machine.run("compose restart order SAGA_DEADLINE=4s RESILIENCE=a.open_for=5s", &[])?;
    ensure!(output.status.success(), "{}", said(&output));
    ensure!(asked.contains("docker stop -t 30 one two\ndocker rm -f one two\n"), "{asked}");
    ensure!(asked.contains("docker compose up -d --no-deps --no-build --scale order=2 order\n"), "{asked}");
    ensure!(
        asked.contains("  order:\n    environment:\n      SAGA_DEADLINE: '4s'\n      RESILIENCE: 'a.open_for=5s'\n"),
        "{asked}"
    );
    Ok(())
}

#[test]
fn a_counter_proofs_project_is_thrown_away() -> Test {
    let machine = Machine::with(ONE)?;
    let (output, asked) = machine.run("demo --without outbox", &[])?;
    ensure!(!output.status.success(), "it is there already, says this docker: {}", said(&output));
    machine.program(
        "bin/docker",
        &DOCKER.replace("\"docker ps\"*\" -q\"*", "\"docker ps -aq\"*) ;;\n    \"docker ps\"*\" -q\"*"),
    )?;
    let (output, asked_then) = machine.run("demo --without outbox", &[])?;
    let asked = asked_then.strip_prefix(&asked).context("a longer list")?;
    ensure!(asked.contains("docker compose up -d --no-build keeper payment inventory order\n"), "{asked}");
    ensure!(asked.contains("console demo --without outbox\n"), "{asked}{}", said(&output));
    ensure!(asked.ends_with("docker compose down --volumes --timeout 5\n"), "{asked}");
    ensure!(!machine.path("suite/.run/without-outbox.yml").exists());
    Ok(())
}
