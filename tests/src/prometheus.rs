//! Prometheus' HTTP API, as Grafana uses it.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::Client;

/// A client of one Prometheus.
#[derive(Clone)]
pub struct PrometheusApi {
    client: Client,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// In the order of time; one of an instant query.
    pub values: Vec<f64>,
}

/// The times of a range query, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from: f64,
    pub to: f64,
    pub step: f64,
}

/// A rule as Prometheus parsed it.
#[derive(Debug, Clone, Deserialize)]
pub struct Rule {
    pub name: String,
    pub query: String,
    /// `alerting`, or `recording` for one that records a series of its name.
    #[serde(rename = "type")]
    pub kind: String,
    /// What its last evaluation failed with, if it failed.
    #[serde(default, rename = "lastError")]
    pub error: String,
}

impl PrometheusApi {
    pub fn new(url: &str) -> Self {
        PrometheusApi { client: Client::new(url) }
    }

    /// The answer at this moment.
    pub async fn instant(&self, query: &str) -> anyhow::Result<Vec<Series>> {
        let data = self.get("query", &[("query", query)]).await?;
        series(&data).with_context(|| format!("{data} to {query}"))
    }

    pub async fn range(&self, query: &str, span: Span) -> anyhow::Result<Vec<Series>> {
        let [from, to, step] = [span.from, span.to, span.step].map(|seconds| seconds.to_string());
        let parameters = [("query", query), ("start", &from), ("end", &to), ("step", &step)];
        let data = self.get("query_range", &parameters).await?;
        series(&data).with_context(|| format!("{data} to {query}"))
    }

    /// All values of a label, of the series that a selector selects, or of all.
    pub async fn label_values(&self, selector: Option<&str>, label: &str) -> anyhow::Result<Vec<String>> {
        let parameters: Vec<_> = selector.map(|selector| ("match[]", selector)).into_iter().collect();
        let data = self.get(&format!("label/{label}/values"), &parameters).await?;
        Ok(serde_json::from_value(data)?)
    }

    /// How many exemplars there are behind a query.
    pub async fn exemplars(&self, query: &str, span: Span) -> anyhow::Result<Vec<Value>> {
        let [from, to] = [span.from, span.to].map(|seconds| seconds.to_string());
        let data = self.get("query_exemplars", &[("query", query), ("start", &from), ("end", &to)]).await?;
        let series = data.as_array().into_iter().flatten();
        Ok(series.flat_map(|series| series["exemplars"].as_array().cloned().unwrap_or_default()).collect())
    }

    pub async fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        let data = self.get("rules", &[]).await?;
        let groups = data["groups"].as_array().context("no groups of rules")?;
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        rules.map(|rule| Ok(serde_json::from_value(rule.clone())?)).collect()
    }

    /// The scraped targets: job and, if the last scrape failed, why.
    pub async fn targets(&self) -> anyhow::Result<Vec<(String, Option<String>)>> {
        let data = self.get("targets", &[("state", "active")]).await?;
        let targets = data["activeTargets"].as_array().context("no targets")?;
        let summary = |target: &Value| {
            let error = target["lastError"].as_str().filter(|error| !error.is_empty()).map(str::to_owned);
            let error = error.or_else(|| (target["health"] != "up").then(|| "not scraped yet".to_owned()));
            (target["labels"]["job"].as_str().unwrap_or_default().to_owned(), error)
        };
        Ok(targets.iter().map(summary).collect())
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let request = self.client.request(Method::GET, &format!("/api/v1/{path}")).query(parameters);
        let answer = self.client.send(request).await?;
        if answer.body["status"] != "success" {
            bail!("{}: {}", answer.status, answer.body["error"].as_str().unwrap_or("no error is given"));
        }
        Ok(answer.body["data"].clone())
    }
}

/// The series of a vector, a matrix or a scalar.
fn series(data: &Value) -> Option<Vec<Series>> {
    let value = |sample: &Value| sample[1].as_str()?.parse::<f64>().ok();
    if data["resultType"] == "scalar" {
        return Some(vec![Series { labels: BTreeMap::new(), values: vec![value(&data["result"])?] }]);
    }
    let read = |series: &Value| {
        let samples = match &series["values"] {
            Value::Array(samples) => samples.iter().map(value).collect::<Option<_>>()?,
            _ => vec![value(&series["value"])?],
        };
        Some(Series { labels: serde_json::from_value(series["metric"].clone()).ok()?, values: samples })
    };
    data["result"].as_array()?.iter().map(read).collect()
}
