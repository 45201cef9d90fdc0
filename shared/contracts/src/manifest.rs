//! The manifest: the services that take part in the saga, each named once. Roles, grants, migrations, users of the broker,
//! streams, processes, containers, scrape targets, the auditor's views and the suites of tests follow from it, read or
//! generated (`./scripts/check --fix generated`).

use saga::Service;

pub const ORDER: Service = Service("order");
pub const INVENTORY: Service = Service("inventory");
pub const PAYMENT: Service = Service("payment");

/// A participant stands before those that it calls, because processes are started from the last to the first.
pub const PARTICIPANTS: &[Participant] = &[
    Participant { service: ORDER, schema: "orders", port: 8081, calls: &["inventory", "payment"] },
    Participant { service: INVENTORY, schema: "inventory", port: 8082, calls: &[] },
    Participant { service: PAYMENT, schema: "payment", port: 8083, calls: &["gateway_simulator"] },
];

/// The participants' services.
pub const SERVICES: [Service; PARTICIPANTS.len()] = {
    let mut services = [PARTICIPANTS[0].service; PARTICIPANTS.len()];
    let mut index = 0;
    while index < services.len() {
        services[index] = PARTICIPANTS[index].service;
        index += 1;
    }
    services
};

/// A service that takes part in the saga, with what is its own.
#[derive(Debug, Clone, Copy)]
pub struct Participant {
    /// Its name is also that of its crate, process, container, user of the broker and folder of migrations.
    pub service: Service,
    /// The schema of its tables, and of those of its outbox and inbox. No reserved word of SQL.
    pub schema: &'static str,
    /// Its default port. The card processor has 8084, the console 8085.
    pub port: u16,
    /// The servers that it calls over HTTP; it finds `inventory` at `INVENTORY_URL`.
    pub calls: &'static [&'static str],
}

impl Participant {
    /// Its role in the database.
    pub fn role(&self) -> String {
        format!("{}_service", self.service)
    }
}

/// The environment variable with the URL of a server: `GATEWAY_URL`, `INVENTORY_URL`.
pub fn url_variable(server: &str) -> String {
    format!("{}_URL", server.trim_end_matches("_simulator").to_uppercase())
}

/// The users of the broker, and the variables that hold their passwords: `ORDER_NATS_PASSWORD`.
pub fn broker_users() -> impl Iterator<Item = (&'static str, String)> {
    let users = SERVICES.map(|service| service.0).into_iter().chain(["provision", "auditor"]);
    users.map(|user| (user, format!("{}_NATS_PASSWORD", user.to_uppercase())))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn participants_have_distinct_names_schemas_and_ports() {
        let own: [fn(&Participant) -> String; 4] =
            [|p| p.service.to_string(), |p| p.service.stream(), |p| p.schema.to_owned(), |p| p.port.to_string()];
        for of in own {
            assert_eq!(PARTICIPANTS.iter().map(of).collect::<HashSet<_>>().len(), PARTICIPANTS.len());
        }
        assert!(
            PARTICIPANTS.iter().all(|p| p.schema != "saga" && p.schema != "audit" && ![8084, 8085].contains(&p.port))
        );
    }

    #[test]
    fn a_participant_stands_before_those_that_it_calls() {
        for (at, caller) in PARTICIPANTS.iter().enumerate() {
            for called in caller.calls {
                let position = PARTICIPANTS.iter().position(|p| p.service.0 == *called);
                assert!(position.is_none_or(|position| position > at), "{} calls {called}", caller.service);
            }
        }
    }
}
