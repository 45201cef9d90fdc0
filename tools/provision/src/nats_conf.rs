//! The NATS server's configuration: who may do what. Rights are read off the table of steps, so a service can
//! publish nothing but its own events, and can read nothing but what its own steps wait for.

use std::fmt::Write;

use contracts::{Consumer, SERVICES};
use saga::Service;

const HEADER: &str = "\
# Configuration of nats-server (2.9 or newer) for the suite.
#
# Generated from the table of steps by `provision nats-conf`; edit tools/provision/src/nats_conf.rs instead.
#
# Each service may publish its own events and nothing else, and may read what its own steps wait for. Only
# `provision` may create, change, purge or delete streams and durable consumers. Answers arrive under
# `_INBOX_<user>.`, so nobody reads another's: clients must set that inbox prefix.
#
# What NATS cannot limit: to which subject an answer is sent. Whoever may ask anything can have the server send
# the answer, or its own next message, to a subject that it may not publish to. These rights contain mistakes
# and leaked reading rights; they do not make events of a service trustworthy whose password is stolen.
#
# Passwords come from the environment: ORDER_NATS_PASSWORD and so on, one for each user below. The server
# refuses to start when one is missing. It reads their values as it reads this file, so a password consists of
# letters and digits, a letter first.
#
# So does the store directory, NATS_STORE_DIR, in quotes where it is no plain word: with -sd on the command line,
# nats-server 2.9 would not read this file again. Address, port and monitoring port come from the command line:
#   NATS_STORE_DIR=/var/lib/nats nats-server -c nats.conf -a 127.0.0.1 -p 4222 -m 8222

max_payload: 1MB

jetstream {
  store_dir: $NATS_STORE_DIR
}

authorization {
  timeout: 5
  users: [
";

/// What a user may do; what is not allowed is refused.
struct Rights {
    user: &'static str,
    publish: Vec<String>,
    /// Exceptions to `publish`.
    publish_deny: Vec<String>,
    subscribe: Vec<String>,
}

/// The whole file `docker/nats.conf`.
pub fn render() -> String {
    let mut file = HEADER.to_owned();
    for service in SERVICES {
        write_user(&mut file, &service_rights(service));
    }
    write_user(&mut file, &provision_rights());
    write_user(&mut file, &auditor_rights());
    file.push_str("  ]\n}\n");
    file
}

fn service_rights(service: Service) -> Rights {
    let stream = service.stream();
    let mut publish = vec![
        format!("events.{service}.>"),
        service.nudge_subject(),
        format!("{}.>", service.replicas_subject()),
        "$JS.API.INFO".to_owned(),
        format!("$JS.API.STREAM.MSG.GET.{stream}"),
        // Its relay looks whether a consumer is ahead of a stream that came back older.
        format!("$JS.API.CONSUMER.LIST.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}.>"),
    ];
    // How full each one is decides whether orders are accepted.
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
    Rights { user: service.0, publish, publish_deny: Vec::new(), subscribe }
}

fn provision_rights() -> Rights {
    Rights {
        user: "provision",
        publish: vec!["$JS.API.>".to_owned()],
        publish_deny: Vec::new(),
        subscribe: vec![inbox("provision")],
    }
}

/// Reads all streams, through consumers of its own that vanish after use. The names of those are made up by
/// clients, so a pattern cannot allow them; instead, the services' durable consumers are forbidden one by one.
/// A request that names its consumer in the body only (`CONSUMER.CREATE.<stream>`) is not allowed at all: it
/// could change a service's consumer unseen. So the auditor's consumers must have names.
fn auditor_rights() -> Rights {
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
    Rights { user: "auditor", publish, publish_deny, subscribe: vec![inbox("auditor")] }
}

/// `ORDER.inventory-reserve_stock`
fn path(consumer: &Consumer) -> String {
    format!("{}.{}", consumer.publisher.stream(), consumer.step.consumer())
}

fn inbox(user: &str) -> String {
    format!("_INBOX_{user}.>")
}

fn write_user(file: &mut String, rights: &Rights) {
    let Rights { user, publish, publish_deny, subscribe } = rights;
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
