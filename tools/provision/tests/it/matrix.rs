//! Users and subjects: every user of the configuration with every subject that any of them may use and every call that changes
//! or reads JetStream's data. The real server grants what the file grants and refuses the rest. Both forms grant the same.

use std::collections::{BTreeMap, BTreeSet};

use provision::broker;
use saga::Service;

use crate::{
    form, guarded_nats_of,
    permissions::{User, nothing_is_missing},
};

/// The permissions of one user in the file, and the imports of its account.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    publish: Vec<String>,
    deny: Vec<String>,
    subscribe: Vec<String>,
    imports: Vec<String>,
}

impl Permissions {
    fn may_publish(&self, subject: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| covers(pattern, subject));
        any(&self.publish) && !any(&self.deny)
    }

    /// One subject of each import that the user may publish.
    pub(crate) fn requests(&self) -> impl Iterator<Item = String> {
        self.imports.iter().map(|import| one_of(import)).filter(|subject| self.may_publish(subject))
    }
}

#[tokio::test]
async fn every_user_may_publish_only_what_the_file_grants() {
    for accounts in [false, true] {
        publishes_only_what_is_granted(accounts).await;
    }
}

async fn publishes_only_what_is_granted(accounts: bool) {
    let nats = guarded_nats_of(accounts).await;
    let provisioner = User::connect(&nats, "provision").await;
    broker::provision(&provisioner.client, &broker::topology()).await.unwrap();
    let users = users(accounts);
    let subjects = subjects(&users);
    let named = contracts::broker_users().count();
    assert!(users.len() == named && subjects.len() > 200, "{} users, {} subjects", users.len(), subjects.len());
    let mut published = 0;
    for (name, permissions) in users.iter().filter(|(name, _)| *name != "provision") {
        let user = User::connect(&nats, name).await;
        // In small portions, because the client drops refusals that are not read in time. They come in the order of the attempts,
        // so after the last one none is outstanding.
        for (n, portion) in subjects.iter().collect::<Vec<_>>().chunks(30).enumerate() {
            for subject in portion {
                user.client.publish((*subject).clone(), "".into()).await.unwrap();
            }
            user.may_not_publish(&format!("the.last.of.portion.{n}")).await;
        }
        let refused: BTreeSet<String> = user.refusals().into_iter().collect();
        for subject in &subjects {
            let refusal = format!("permissions violation for publish to \"{subject}\"").to_lowercase();
            assert_eq!(!refused.contains(&refusal), permissions.may_publish(subject), "{name} publishes to {subject}");
        }
        published += subjects.iter().filter(|s| s.starts_with("events.") && permissions.may_publish(s)).count();
    }
    assert!(nothing_is_missing(&nats).await, "a stream or consumer was changed");
    let mut kept = 0;
    for service in contracts::SERVICES {
        kept += provisioner.js().get_stream(service.stream()).await.unwrap().cached_info().state.messages;
    }
    assert_eq!(usize::try_from(kept).unwrap(), published, "the streams hold what was allowed, and nothing was purged");
}

#[test]
fn the_file_grants_no_service_the_subjects_of_another() {
    let durables = contracts::consumers();
    for (name, permissions) in users(true).iter().filter(|(name, _)| *name != "provision") {
        let own = contracts::SERVICES.into_iter().find(|service| service.0 == name.as_str());
        let mut theirs: Vec<String> = Vec::new();
        for service in contracts::SERVICES.into_iter().filter(|service| Some(*service) != own) {
            theirs.extend([format!("events.{service}.x"), format!("nudge.{service}"), format!("_INBOX_{service}.x")]);
            theirs.push(format!("replicas.{service}.ask"));
            if own.is_some() {
                let stream = service.stream();
                let reads = ["STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.LIST", "CONSUMER.NAMES"];
                theirs.extend(reads.map(|call| format!("$JS.API.{call}.{stream}")));
                theirs.push(format!("$JS.API.DIRECT.GET.{stream}.events.{service}.x"));
            }
        }
        for consumer in durables.iter().filter(|consumer| Some(consumer.service) != own) {
            let of = format!("{}.{}", consumer.publisher.stream(), consumer.step.consumer());
            theirs.push(format!("$JS.API.CONSUMER.MSG.NEXT.{of}"));
            theirs.extend(["$JS.ACK", "$JS.ACK._.hash"].map(|begin| format!("{begin}.{of}.1.1.1.1.0")));
        }
        theirs.extend(changes());
        for subject in theirs {
            assert!(!permissions.may_publish(&subject), "{name} may publish to {subject}");
        }
        for pattern in &permissions.subscribe {
            let mine = [format!("_INBOX_{name}.>"), format!("nudge.{name}"), format!("replicas.{name}.>")];
            assert!(mine.contains(pattern), "{name} may subscribe to {pattern}");
        }
    }
}

#[test]
fn both_forms_have_the_same_permissions() {
    let (one, each) = (users(false), users(true));
    assert_eq!(one.keys().collect::<Vec<_>>(), each.keys().collect::<Vec<_>>());
    for (name, Permissions { publish, deny, subscribe, imports }) in one {
        let other = &each[&name];
        assert_eq!((publish, deny, subscribe), (other.publish.clone(), other.deny.clone(), other.subscribe.clone()));
        assert!(imports.is_empty(), "{name} imports {imports:?}");
    }
}

/// A subject that two imports match would be sent twice.
#[test]
fn an_account_imports_what_its_user_may_publish_once() {
    // What a service sends to its own replicas.
    let kept = ["nudge.", "replicas."];
    for (name, Permissions { publish, imports, .. }) in users(true).iter().filter(|(name, _)| *name != "provision") {
        for subject in publish.iter().chain(imports).map(|pattern| one_of(pattern)) {
            assert!(publish.iter().any(|pattern| covers(pattern, &subject)), "{name} imports {subject}");
            let matching = imports.iter().filter(|pattern| covers(pattern, &subject)).count();
            let wanted = usize::from(!kept.iter().any(|start| subject.starts_with(start)));
            assert_eq!(matching, wanted, "imports of {name} that match {subject}");
        }
    }
}

/// Calls that create, change, purge or delete JetStream's objects.
fn changes() -> impl Iterator<Item = String> {
    let streams = contracts::SERVICES.map(Service::stream);
    let of_streams =
        ["CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "PEER.REMOVE", "LEADER.STEPDOWN"];
    let of_streams = of_streams.into_iter().flat_map(move |call| {
        contracts::SERVICES.map(Service::stream).map(|stream| format!("$JS.API.STREAM.{call}.{stream}"))
    });
    let anonymous = streams.map(|stream| format!("$JS.API.CONSUMER.CREATE.{stream}"));
    let of_consumers = contracts::consumers().into_iter().flat_map(|consumer| {
        let of = format!("{}.{}", consumer.publisher.stream(), consumer.step.consumer());
        let calls = ["CREATE", "DURABLE.CREATE", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"];
        let filtered = format!("$JS.API.CONSUMER.CREATE.{of}.events.x");
        calls.map(|call| format!("$JS.API.CONSUMER.{call}.{of}")).into_iter().chain([filtered])
    });
    of_streams.chain(anonymous).chain(of_consumers)
}

/// One subject for each pattern of each user, and all calls of `changes`.
fn subjects(users: &BTreeMap<String, Permissions>) -> BTreeSet<String> {
    let patterns = users
        .values()
        .flat_map(|permissions| permissions.publish.iter().chain(&permissions.deny).chain(&permissions.subscribe));
    let concrete = patterns.filter(|pattern| *pattern != "$JS.API.>").map(|pattern| one_of(pattern));
    let others =
        ["$SYS.REQ.SERVER.PING", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.G", "$JS.API.META.LEADER.STEPDOWN"];
    concrete.chain(changes()).chain(others.map(str::to_owned)).collect()
}

/// A subject that the pattern covers.
fn one_of(pattern: &str) -> String {
    let tokens = pattern.split('.').map(|token| if matches!(token, "*" | ">") { "x" } else { token });
    tokens.collect::<Vec<_>>().join(".")
}

/// Reads the users of the file, which has one item a line.
pub(crate) fn users(accounts: bool) -> BTreeMap<String, Permissions> {
    let (mut users, mut name, mut verb, mut list) = (BTreeMap::<String, Permissions>::new(), String::new(), "", "");
    for line in form(accounts).lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        match line.split_whitespace().next().unwrap_or_default() {
            "user:" => name = line["user:".len()..].trim().to_owned(),
            word @ ("publish" | "subscribe") => verb = word,
            word @ ("allow:" | "deny:") => list = word,
            "{service:" => {
                if let Some(import) = line.strip_prefix("{service: {account: SUITE, subject: \"") {
                    let permissions = users.entry(name.clone()).or_default();
                    permissions.imports.push(import.trim_end_matches("\"}}").to_owned());
                }
            }
            subject if subject.starts_with('"') => {
                let permissions = users.entry(name.clone()).or_default();
                let into = match (verb, list) {
                    ("publish", "allow:") => &mut permissions.publish,
                    ("publish", "deny:") => &mut permissions.deny,
                    ("subscribe", "allow:") => &mut permissions.subscribe,
                    other => panic!("a list of another kind: {other:?}"),
                };
                into.push(subject.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
    users
}

/// Whether a pattern of NATS covers a subject.
fn covers(pattern: &str, subject: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), given.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(token), Some(word)) if token == "*" || token == word => {}
            _ => return false,
        }
    }
}
