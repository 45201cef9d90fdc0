//! The NATS server's configuration: users and permissions. They follow from the table of steps: a service may publish only its
//! own events, and read only what its own steps consume. The users share an account, or each service has its own.

use std::fmt::Write;

use contracts::{Consumer, SERVICES};
use saga::Service;

const HEADER: &str = "\
# Configuration of nats-server (2.9 or newer) for the suite.
#
# Generated from the table of steps by `{command}`; edit tools/provision/src/nats_conf.rs instead.
#
# Each service may publish only its own events, and read only what its own steps consume. Only `provision` may
# create, change, purge or delete streams and durable consumers. Answers arrive under `_INBOX_<user>.`, so no user
# reads the answers of another one: clients must set that inbox prefix.
#
{replies}#
# Passwords come from the environment: ORDER_NATS_PASSWORD and so on, one for each user below. The server
# refuses to start when one is missing. It parses their values like this file, so a password consists of letters
# and digits, a letter first.
#
# So does the store directory, NATS_STORE_DIR, in quotes unless it is a plain word: with -sd on the command line,
# nats-server 2.9 would not reload this file. Address, port and monitoring port come from the command line:
#   NATS_STORE_DIR=/var/lib/nats nats-server -c nats.conf -a 127.0.0.1 -p 4222 -m 8222

max_payload: 1MB

jetstream {
  store_dir: $NATS_STORE_DIR
}

authorization {
  timeout: 5
";

const SHARED: &str = "\
# What NATS cannot limit: the reply subject of a request. A user with any request permission can have the server
# send the answer, or its next message, to a subject that the user may not publish to. These permissions limit
# mistakes and leaked read access; they do not protect the events of a service whose password is stolen.
";

const SEPARATE: &str = "\
# NATS does not check the reply subject of a request. But the answer stays in the account that made the request.
# The streams are in account SUITE, and the other accounts import what their users may send there. So whatever the
# reply subject, no answer becomes an event of another service, or a call of JetStream.
#
# An account that is new in this file gets its imports with the second reload, or a restart.
";

/// What account SUITE lets others import: everything but what a service sends to its own replicas.
///
/// Every account has to import `$JS.API.INFO`. Otherwise nats-server itself also answers all its requests to `$JS.API`: that it
/// has no JetStream.
const EXPORTS: [&str; 15] = [
    "events.>",
    "$JS.ACK.>",
    "$JS.FC.>",
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.>",
    "$JS.API.STREAM.MSG.GET.>",
    "$JS.API.DIRECT.GET.>",
    "$JS.API.CONSUMER.NAMES.>",
    "$JS.API.CONSUMER.LIST.>",
    "$JS.API.CONSUMER.INFO.>",
    "$JS.API.CONSUMER.CREATE.>",
    "$JS.API.CONSUMER.DELETE.>",
    MESSAGES,
];
/// The only request with several answers.
const MESSAGES: &str = "$JS.API.CONSUMER.MSG.NEXT.>";

/// The permissions of a user; everything else is refused.
struct Permissions {
    user: &'static str,
    publish: Vec<String>,
    /// Exceptions to `publish`.
    publish_deny: Vec<String>,
    subscribe: Vec<String>,
}

/// The whole file `docker/nats.conf`: one account.
pub fn render() -> String {
    let mut file = header("provision nats-conf", SHARED);
    file.push_str("  users: [\n");
    for service in SERVICES {
        write_user(&mut file, &service_permissions(service));
    }
    write_user(&mut file, &provision_permissions());
    write_user(&mut file, &auditor_permissions());
    file.push_str("  ]\n}\n");
    file
}

/// The same permissions, with an account for each service and the auditor.
pub fn render_accounts() -> String {
    let mut file = header("provision nats-conf --accounts", SEPARATE);
    file.push_str("}\n\naccounts {\n  SUITE {\n    jetstream: enabled\n");
    write_account(&mut file, &provision_permissions(), "exports", EXPORTS.map(export));
    for permissions in SERVICES.map(service_permissions).into_iter().chain([auditor_permissions()]) {
        let _ = writeln!(file, "\n  {} {{", permissions.user.to_uppercase());
        write_account(&mut file, &permissions, "imports", imports(&permissions));
    }
    file.push_str("}\n");
    file
}

fn header(command: &str, replies: &str) -> String {
    HEADER.replace("{command}", command).replace("{replies}", replies)
}

fn service_permissions(service: Service) -> Permissions {
    let stream = service.stream();
    let mut publish = vec![
        format!("events.{service}.>"),
        service.nudge_subject(),
        format!("{}.>", service.replicas_subject()),
        "$JS.API.INFO".to_owned(),
        format!("$JS.API.STREAM.MSG.GET.{stream}"),
        // Its relay checks whether a consumer is ahead of a stream that was rolled back; older builds do it with a list.
        format!("$JS.API.CONSUMER.INFO.{stream}.>"),
        format!("$JS.API.CONSUMER.LIST.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}.>"),
    ];
    // Orders are accepted depending on how full each stream is.
    publish.extend(SERVICES.map(|any| format!("$JS.API.STREAM.INFO.{}", any.stream())));
    for consumer in contracts::consumers().iter().filter(|consumer| consumer.service == service) {
        let path = path(consumer);
        publish.push(format!("$JS.API.CONSUMER.INFO.{path}"));
        publish.push(format!("$JS.API.CONSUMER.MSG.NEXT.{path}"));
        publish.push(format!("$JS.ACK.{path}.>"));
        // Newer servers can put the domain and a hash of the account before the stream.
        publish.push(format!("$JS.ACK.*.*.{path}.>"));
    }
    let subscribe = vec![inbox(service.0), service.nudge_subject(), format!("{}.>", service.replicas_subject())];
    Permissions { user: service.0, publish, publish_deny: Vec::new(), subscribe }
}

fn provision_permissions() -> Permissions {
    Permissions {
        user: "provision",
        publish: vec!["$JS.API.>".to_owned()],
        publish_deny: Vec::new(),
        subscribe: vec![inbox("provision")],
    }
}

/// Reads all streams, through ephemeral consumers. Clients choose their names, so a pattern cannot allow them; instead, the
/// services' durable consumers are denied one by one. A request with the consumer's name in the body only
/// (`CONSUMER.CREATE.<stream>`) is denied, because it could change a service's consumer. So the auditor's consumers need names.
fn auditor_permissions() -> Permissions {
    let mut publish: Vec<String> =
        ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.FC.>"].map(str::to_owned).into();
    for stream in SERVICES.map(Service::stream) {
        publish.extend(
            ["STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.NAMES", "CONSUMER.LIST"]
                .map(|call| format!("$JS.API.{call}.{stream}")),
        );
        publish.extend(
            ["DIRECT.GET", "CONSUMER.INFO", "CONSUMER.CREATE", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT"]
                .map(|call| format!("$JS.API.{call}.{stream}.>")),
        );
    }
    let mut publish_deny = Vec::new();
    for path in contracts::consumers().iter().map(path) {
        publish_deny.push(format!("$JS.API.CONSUMER.CREATE.{path}.>"));
        publish_deny.extend(["CREATE", "DELETE", "MSG.NEXT"].map(|call| format!("$JS.API.CONSUMER.{call}.{path}")));
    }
    Permissions { user: "auditor", publish, publish_deny, subscribe: vec![inbox("auditor")] }
}

/// `ORDER.inventory-reserve_stock`
fn path(consumer: &Consumer) -> String {
    format!("{}.{}", consumer.publisher.stream(), consumer.step.consumer())
}

fn inbox(user: &str) -> String {
    format!("_INBOX_{user}.>")
}

fn export(subject: &str) -> String {
    let answers = if subject == MESSAGES { ", response_type: stream" } else { "" };
    format!("{{service: \"{subject}\"{answers}}}")
}

/// What the user may publish, as far as it is exported. No two imports match the same subject: the server would make the request
/// twice.
fn imports(permissions: &Permissions) -> impl Iterator<Item = String> {
    let Permissions { publish, .. } = permissions;
    let exported = publish.iter().filter(|subject| EXPORTS.iter().any(|export| covers(export, subject)));
    let once = exported.filter(|subject| !publish.iter().any(|other| other != *subject && covers(other, subject)));
    once.map(|subject| format!("{{service: {{account: SUITE, subject: \"{subject}\"}}}}"))
}

fn covers(pattern: &str, subject: &str) -> bool {
    pattern.strip_suffix('>').map_or(pattern == subject, |start| subject.starts_with(start))
}

/// The rest of an account after its name.
fn write_account(file: &mut String, permissions: &Permissions, kind: &str, services: impl IntoIterator<Item = String>) {
    let mut user = String::new();
    write_user(&mut user, permissions);
    let user: Vec<_> = user.lines().map(|line| format!("  {line}")).collect();
    let services: Vec<_> = services.into_iter().map(|service| format!("      {service}")).collect();
    let _ =
        write!(file, "    users: [\n{}\n    ]\n    {kind}: [\n{}\n    ]\n  }}\n", user.join("\n"), services.join("\n"));
}

fn write_user(file: &mut String, permissions: &Permissions) {
    let Permissions { user, publish, publish_deny, subscribe } = permissions;
    let _ = write!(
        file,
        "    {{\n      user: {user}\n      password: ${}_NATS_PASSWORD\n      permissions {{\n",
        user.to_uppercase()
    );
    file.push_str("        publish {\n");
    write_subjects(file, "allow", publish);
    write_subjects(file, "deny", publish_deny);
    file.push_str("        }\n        subscribe {\n");
    write_subjects(file, "allow", subscribe);
    file.push_str("        }\n      }\n    }\n");
}

fn write_subjects(file: &mut String, verb: &str, subjects: &[String]) {
    if subjects.is_empty() {
        return;
    }
    let _ = writeln!(file, "          {verb}: [");
    for subject in subjects {
        let _ = writeln!(file, "            \"{subject}\"");
    }
    file.push_str("          ]\n");
}
