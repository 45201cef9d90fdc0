//! What is published, compared with the documents that describe it to others: docs/asyncapi.json and docs/schemas.

use std::{collections::HashMap, fs};

use anyhow::{Context, anyhow, ensure};
use contracts::PARTICIPANTS;
use jsonschema::Validator;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, types::Json};

use crate::TestSuite;

/// docs/asyncapi.json, with what it and docs/schemas say of the messages.
pub struct AsyncApi {
    pub document: Value,
    /// Of each message its headers, its body, and its body according to its own file.
    messages: HashMap<String, [Validator; 3]>,
}

impl AsyncApi {
    pub fn read() -> anyhow::Result<AsyncApi> {
        let document = json("asyncapi.json")?;
        let names = document["components"]["messages"].as_object().context("there are no messages")?.keys();
        let messages = names.map(|name| {
            let within = |part: &str| {
                let schema = json!({"$ref": format!("#/components/messages/{name}/{part}")});
                compiled(&json!({"components": document["components"], "allOf": [schema]}))
            };
            let alone = compiled(&json(&format!("schemas/{name}.json"))?)?;
            Ok((name.clone(), [within("headers")?, within("payload")?, alone]))
        });
        let messages = messages.collect::<anyhow::Result<_>>()?;
        Ok(AsyncApi { document, messages })
    }

    /// Fails unless this is a message of the channel, and its body has the message's schemas.
    pub fn check_body(&self, subject: &str, message: &str, body: &Value) -> anyhow::Result<()> {
        let documented = &self.document["channels"][subject]["messages"][message];
        ensure!(documented.is_object(), "{message} on {subject} is not documented");
        let [_, within, alone] = self.messages.get(message).with_context(|| format!("{message} has no schema"))?;
        valid(within, body).and_then(|()| valid(alone, body)).with_context(|| format!("{message}: {body}"))
    }

    /// Whether each of the message's schemas refuses this body.
    pub fn refuses(&self, message: &str, body: &Value) -> bool {
        self.messages.get(message).is_some_and(|[_, bodies @ ..]| bodies.iter().all(|schema| !schema.is_valid(body)))
    }

    /// As [`check_body`](Self::check_body) for the headers.
    pub fn check_headers(&self, message: &str, headers: &Value) -> anyhow::Result<()> {
        let [schema, ..] = self.messages.get(message).with_context(|| format!("{message} is not documented"))?;
        valid(schema, headers).with_context(|| format!("{message}: {headers}"))
    }
}

impl TestSuite {
    /// Whether all that the suite's outboxes have, sent or not, is documented.
    pub async fn all_events_are_documented(&self) -> anyhow::Result<()> {
        let api = AsyncApi::read()?;
        // Rows that a test has made up itself have no headers.
        let of_a_table = |table: String| {
            format!("select subject, event_type, payload from {table} where headers->>'ce-source' is not null")
        };
        let tables =
            PARTICIPANTS.iter().flat_map(|p| ["outbox", "outbox_published"].map(|t| format!("{}.{t}", p.schema)));
        let sql = tables.map(of_a_table).collect::<Vec<_>>().join(" union all ");
        let rows: Vec<(String, String, Json<Value>)> = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        rows.iter().try_for_each(|(subject, message, Json(body))| api.check_body(subject, message, body))
    }
}

fn json(file: &str) -> anyhow::Result<Value> {
    let path = format!("{}/../docs/{file}", env!("CARGO_MANIFEST_DIR"));
    Ok(serde_json::from_slice(&fs::read(&path).with_context(|| path)?)?)
}

fn compiled(schema: &Value) -> anyhow::Result<Validator> {
    jsonschema::options().should_validate_formats(true).build(schema).map_err(|error| anyhow!("{error}"))
}

fn valid(schema: &Validator, value: &Value) -> anyhow::Result<()> {
    schema.validate(value).map_err(|error| anyhow!("{}: {error}", error.instance_path()))
}
