//! Prints the contracts between builds of the services, for docs/contracts.json: the JSON schema of every version of
//! every event that is published or read, and the subject of every durable consumer.

use std::{collections::BTreeMap, error::Error};

use contracts::{
    catalogue::{PROJECTIONS, ProductCreated, ProductDetailsChanged, ProductPriceChanged, StockReplenished},
    consumers,
    order_fulfillment::{
        SAGA,
        events::{EventVisitor, visit_events},
    },
};
use saga::Event;
use serde::Serialize;
use utoipa::{
    ToSchema,
    openapi::{RefOr, Schema},
};

#[derive(Default, Serialize)]
struct Contracts {
    consumers: BTreeMap<String, String>,
    /// By name and version.
    events: BTreeMap<String, RefOr<Schema>>,
    /// The schemas that `$ref` in events refers to.
    parts: BTreeMap<String, RefOr<Schema>>,
}

impl Contracts {
    /// Adds a version that is published, or still read.
    fn add<B: ToSchema>(&mut self, wire_name: String) {
        let mut parts = Vec::new();
        B::schemas(&mut parts);
        self.parts.extend(parts);
        self.events.insert(wire_name, B::schema());
    }
}

impl EventVisitor for Contracts {
    fn visit<E: Event + ToSchema>(&mut self) {
        self.add::<E>(E::TYPE.wire_name());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut all = Contracts::default();
    visit_events(&mut all);
    all.visit::<ProductCreated>();
    all.visit::<ProductPriceChanged>();
    all.visit::<ProductDetailsChanged>();
    all.visit::<StockReplenished>();
    for consumer in consumers() {
        let subject = consumer.step.consumes().map(|event| event.subject(consumer.publisher));
        let name = format!("{} of {}", consumer.step.consumer(), consumer.publisher.stream());
        all.consumers.insert(name, subject.unwrap_or_default());
    }
    let awaited = PROJECTIONS.iter().filter_map(|step| step.consumes());
    for event in SAGA.events().into_iter().chain(awaited) {
        if !all.events.contains_key(&event.wire_name()) {
            return Err(format!("{} is missing in visit_events", event.wire_name()).into());
        }
    }
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}
