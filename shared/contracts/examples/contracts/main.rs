//! Prints a file that describes the events, for `./scripts/check generated`:
//!
//! - docs/contracts.json, the contracts between builds of the services: the JSON schema of every version of every event that is
//!   published or read, and the subject of every durable consumer;
//! - docs/asyncapi.json, the same for other programs and for people, as AsyncAPI;
//! - docs/schemas/EVENT.json, the JSON schema of one event alone. `schemas` prints these names.

mod asyncapi;
mod headers;
mod json_schema;

use std::{collections::BTreeMap, error::Error};

use contracts::{
    catalogue::{PROJECTIONS, ProductCreated, ProductDetailsChanged, ProductPriceChanged, StockReplenished},
    consumers,
    order_fulfillment::{
        SAGA,
        events::{EventVisitor, visit_events},
    },
};
use saga::{Event, EventType};
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
    /// The type of each event.
    #[serde(skip)]
    types: BTreeMap<String, EventType>,
}

impl Contracts {
    /// Adds a version that is published, or still read.
    fn add<B: ToSchema>(&mut self, event: EventType) {
        let mut parts = Vec::new();
        B::schemas(&mut parts);
        self.parts.extend(parts);
        self.events.insert(event.wire_name(), B::schema());
        self.types.insert(event.wire_name(), event);
    }
}

impl EventVisitor for Contracts {
    fn visit<E: Event + ToSchema>(&mut self) {
        self.add::<E>(E::TYPE);
    }
}

fn contracts() -> Result<Contracts, Box<dyn Error>> {
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
    Ok(all)
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: contracts FILE|schemas")?;
    let all = contracts()?;
    let json = match file.as_str() {
        "schemas" => {
            all.events.keys().for_each(|event| println!("docs/schemas/{event}.json"));
            return Ok(());
        }
        "docs/contracts.json" => serde_json::to_string_pretty(&all)?,
        "docs/asyncapi.json" => serde_json::to_string_pretty(&asyncapi::document(&all)?)?,
        _ => {
            let event = file.strip_prefix("docs/schemas/").and_then(|name| name.strip_suffix(".json"));
            let schema = event.and_then(|event| json_schema::alone(&all, event));
            serde_json::to_string_pretty(&schema.ok_or_else(|| format!("{file} is not made here"))?)?
        }
    };
    println!("{json}");
    Ok(())
}
