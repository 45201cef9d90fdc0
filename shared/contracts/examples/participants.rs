//! Generates a file from the manifest of participants: `participants.tsv`, which scripts and dashboards read, and Kubernetes'
//! `participants.yaml` as a whole; in other files the parts between `# participants: NAME` and `# end of participants`. `./scripts/check generated` compares.

use std::{fmt::Write, fs};

use contracts::{PARTICIPANTS, Participant, broker_users, url_variable};

const END: &str = "# end of participants";

fn main() -> Result<(), String> {
    let file = std::env::args().nth(1).ok_or("usage: participants FILE")?;
    print!("{}", generated(&file).map_err(|why| format!("{file}: {why}"))?);
    Ok(())
}

fn generated(file: &str) -> Result<String, String> {
    if file.ends_with(".tsv") {
        return Ok(list());
    }
    if file.ends_with("/participants.yaml") {
        return kubernetes();
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let (mut out, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        let Some((indent, name)) = line.split_once("# participants: ") else { continue };
        let part = part(name).ok_or_else(|| format!("there is no part {name}"))?;
        for line in part.lines() {
            let _ = writeln!(out, "{}", format!("{indent}{line}").trim_end());
        }
        let end = lines.find(|line| line.trim() == END).ok_or_else(|| format!("the part {name} has no end"))?;
        let _ = writeln!(out, "{end}");
    }
    Ok(out)
}

fn list() -> String {
    let mut out = "# The participants: service, schema, role, port, and the servers that it calls. Written from\n\
                   # shared/contracts/src/manifest.rs by ./scripts/check --fix generated.\n"
        .to_owned();
    for participant in PARTICIPANTS {
        let Participant { service, schema, port, calls } = participant;
        let calls = if calls.is_empty() { "-".to_owned() } else { calls.join(",") };
        let _ = writeln!(out, "{service}\t{schema}\t{}\t{port}\t{calls}", participant.role());
    }
    out
}

fn part(name: &str) -> Option<String> {
    Some(match name {
        "settings" => settings(),
        "containers" => PARTICIPANTS.iter().map(container).collect::<Vec<_>>().join("\n"),
        "anchors" => anchors(),
        "jobs" => each(|p| {
            format!(
                "- job_name: {service}\n  dns_sd_configs: [{{names: [{service}.replicas], type: A, port: {port}, refresh_interval: 5s}}]",
                service = p.service,
                port = p.port
            )
        }),
        "up" => up(),
        _ => return None,
    })
}

/// The lines of all participants.
fn each(lines: impl Fn(&Participant) -> String) -> String {
    PARTICIPANTS.iter().map(lines).collect::<Vec<_>>().join("\n")
}

fn upper(participant: &Participant) -> String {
    participant.service.0.to_uppercase()
}

/// A part of `.env`.
fn settings() -> String {
    each(|p| {
        let (service, name) = (p.service, upper(p));
        format!("{name}_PORT={}\n{name}_DB_PASSWORD={}\n{name}_NATS_PASSWORD={service}", p.port, p.role())
    })
}

/// The number of reachable instances per job: a part of `grafana/alerts/services.yml`.
fn up() -> String {
    let jobs = PARTICIPANTS.iter().map(|p| p.service.0).chain(["gateway_simulator", "console"]);
    let filled = jobs.clone().map(|job| format!("or label_replace(vector(0), \"job\", \"{job}\", \"\", \"\")"));
    let names = jobs.collect::<Vec<_>>().join("|");
    format!("sum by (job) (up{{job=~\"{names}\"}})\n{}", filled.collect::<Vec<_>>().join("\n"))
}

/// The environment of other containers, as far as it concerns the participants.
fn anchors() -> String {
    let broker =
        broker_users().map(|(_, variable)| format!("  {variable}: ${{{variable}}}")).collect::<Vec<_>>().join("\n");
    let roles = each(|p| format!("  {name}_DB_PASSWORD: ${{{name}_DB_PASSWORD}}", name = upper(p)));
    let addresses = each(|p| format!("  {}: http://{}:{}", url_variable(p.service.0), p.service, p.port));
    let forward = each(|p| format!("  - 0.0.0.0:{port}={}:{port}", p.service, port = p.port));
    let ports = each(|p| format!("  - \"127.0.0.1:${{{}_PORT}}:{}\"", upper(p), p.port));
    let healthy = each(|p| format!("  {}: {{condition: service_healthy}}", p.service));
    format!(
        "x-broker-passwords: &broker-passwords\n{broker}\n\nx-role-passwords: &role-passwords\n{roles}\n\n\
         x-addresses: &addresses\n{addresses}\n\nx-forward: &forward\n  - console\n  - forward\n{forward}\n\n\
         x-ports: &ports\n{ports}\n\nx-healthy: &healthy\n{healthy}"
    )
}

/// Of a participant, or the card processor.
fn port_of(server: &str) -> u16 {
    PARTICIPANTS.iter().find(|p| p.service.0 == server).map_or(8084, |p| p.port)
}

fn container(participant: &Participant) -> String {
    let Participant { service, port, calls, .. } = participant;
    let (name, role) = (upper(participant), participant.role());
    let mut out = format!(
        "{service}: &{service}\n  <<: *suite\n  command: [{service}]\n  scale: ${{REPLICAS}}\n  \
         networks: {{default: {{aliases: [{service}.replicas]}}}}\n  environment:\n    <<: *participant\n    \
         LISTEN: 0.0.0.0:{port}\n    DATABASE_URL: postgres://{role}:${{{name}_DB_PASSWORD}}@postgres:5432/suite\n    \
         NATS_USER: {service}\n    NATS_PASSWORD: ${{{name}_NATS_PASSWORD}}\n"
    );
    for server in *calls {
        let _ = writeln!(out, "    {}: http://{server}:{}", url_variable(server), port_of(server));
    }
    let _ = write!(
        out,
        "  healthcheck:\n    <<: *health\n    \
         test: [CMD, console, health, \"http://127.0.0.1:{port}/health/ready\"]\n  depends_on:\n    \
         provision: {{condition: service_completed_successfully}}\n"
    );
    for server in *calls {
        let _ = writeln!(out, "    {server}: {{condition: service_healthy}}");
    }
    let _ = write!(out, "\n{service}-2:\n  <<: *{service}\n  scale: 1\n  profiles: [replicas]\n");
    out
}

/// The rules of Prometheus that the suite's alerts consist of.
const ALERTS: [&str; 4] = ["saga", "services", "messaging", "resilience"];

/// `deploy/kubernetes/base/participants.yaml`: what each participant has, and what names all of them.
fn kubernetes() -> Result<String, String> {
    let mut out =
        "# The participants. Written from shared/contracts/src/manifest.rs, and the alerts from grafana/alerts, by\n\
                   # ./scripts/check --fix generated.\n"
            .to_owned();
    for participant in PARTICIPANTS {
        out.push_str(&objects(participant));
    }
    let addresses = each(|p| format!("  {}: http://{}:{}", url_variable(p.service.0), p.service, p.port));
    let ports = each(|p| format!("        - {{port: {}}}", p.port));
    let _ = write!(
        out,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: addresses\ndata:\n{addresses}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: console\nspec:\n  \
         podSelector:\n    matchLabels: {{app: console}}\n  policyTypes: [Egress]\n  egress:\n    \
         - to: [podSelector: {{matchLabels: {{tier: participant}}}}]\n      ports:\n{ports}\n---\n\
         apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: suite\nspec:\n  groups:\n"
    );
    for name in ALERTS {
        let file = format!("grafana/alerts/{name}.yml");
        let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let (_, groups) = text.split_once("\ngroups:\n").ok_or_else(|| format!("{file} has no groups"))?;
        for line in groups.lines() {
            let _ = writeln!(out, "{}", format!("  {line}").trim_end());
        }
    }
    Ok(out)
}

/// A participant in Kubernetes.
fn objects(participant: &Participant) -> String {
    let host = |server: &str| server.replace('_', "-");
    let (mut urls, mut egress) = (String::new(), String::new());
    for server in participant.calls {
        let port = port_of(server);
        let _ = write!(
            urls,
            "\n            - {{name: {}, value: \"http://{}:{port}\"}}",
            url_variable(server),
            host(server)
        );
        let _ = write!(
            egress,
            "\n    - to: [podSelector: {{matchLabels: {{app: {server}}}}}]\n      ports: [{{port: {port}}}]"
        );
    }
    let callers = PARTICIPANTS.iter().filter(|p| p.calls.contains(&participant.service.0)).map(|p| p.service.0);
    let callers =
        callers.chain(["console"]).map(|app| format!("\n        - podSelector: {{matchLabels: {{app: {app}}}}}"));
    let values = [
        ("{app}", participant.service.0.to_owned()),
        ("{upper}", upper(participant)),
        ("{role}", participant.role()),
        ("{port}", participant.port.to_string()),
        ("{urls}", urls),
        ("{egress}", if egress.is_empty() { " []".to_owned() } else { egress }),
        ("{callers}", callers.collect()),
    ];
    values.iter().fold(include_str!("participant.yaml").to_owned(), |text, (name, value)| text.replace(name, value))
}
