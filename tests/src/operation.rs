//! The operations of a service's OpenAPI document. Tests about every route read them here, so none can be forgotten.

use std::collections::BTreeSet;

use anyhow::Context;
use reqwest::Method;
use uuid::Uuid;

use crate::Replica;

pub struct Operation {
    pub method: Method,
    /// With its parameters in braces.
    pub path: String,
    /// The parameters of its query.
    pub query: Vec<String>,
    pub takes_body: bool,
    /// The documented statuses.
    pub answers: BTreeSet<String>,
    /// Whether the document demands the admin token.
    pub guarded: bool,
}

impl Operation {
    /// The path with a value for each parameter.
    pub fn filled(&self) -> String {
        let segments = self.path.split('/').map(|segment| match segment {
            "{sku}" | "{step}" => "nope".to_owned(),
            parameter if parameter.starts_with('{') => Uuid::now_v7().to_string(),
            literal => literal.to_owned(),
        });
        segments.collect::<Vec<_>>().join("/")
    }
}

impl Replica {
    pub fn operations(&self) -> anyhow::Result<Vec<Operation>> {
        let document = serde_json::to_value(&self.openapi)?;
        let mut all = Vec::new();
        for (path, operations) in document["paths"].as_object().context("no paths")? {
            for (method, operation) in operations.as_object().context("no operations")? {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query = parameters.filter(|p| p["in"] == "query").filter_map(|p| p["name"].as_str());
                let answers = operation["responses"].as_object().context("no answers")?;
                all.push(Operation {
                    method: method.to_uppercase().parse()?,
                    path: path.clone(),
                    query: query.map(str::to_owned).collect(),
                    takes_body: operation["requestBody"].is_object(),
                    answers: answers.keys().cloned().collect(),
                    guarded: operation["security"][0]["admin_token"].is_array(),
                });
            }
        }
        Ok(all)
    }
}
