//! The parsed answer of `/metrics`.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};

use crate::Client;

/// The answer to one scrape.
#[derive(Debug, Clone, Default)]
pub struct Scrape {
    /// By their names without the suffixes that samples have.
    pub families: BTreeMap<String, Family>,
}

/// A metric with all its samples.
#[derive(Debug, Clone, Default)]
pub struct Family {
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
pub struct Sample {
    /// With its suffix: `_total`, `_bucket`.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// The trace that the sample's exemplar names.
    pub trace_id: Option<String>,
}

impl Scrape {
    pub async fn of(client: &Client) -> anyhow::Result<Scrape> {
        let answer = client.get("/metrics").await?;
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        ensure!(kind.starts_with("application/openmetrics-text"), "the metrics are {kind}");
        Scrape::parse(answer.expect(200)?.as_str().context("the metrics are no text")?)
    }

    pub fn parse(text: &str) -> anyhow::Result<Scrape> {
        let mut scrape = Scrape::default();
        let mut current = String::new();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "EOF"] => return Ok(scrape),
                ["#", "HELP", name, help] => {
                    name.clone_into(&mut current);
                    let family = Family { help: help.trim_end_matches('.').to_owned(), ..Family::default() };
                    ensure!(scrape.families.insert(current.clone(), family).is_none(), "{name} is there twice");
                }
                ["#", "TYPE", _, kind] => kind.clone_into(&mut scrape.family(&current)?.kind),
                ["#", "UNIT", ..] => {}
                _ => {
                    let sample = sample(line).with_context(|| format!("not a sample: {line}"))?;
                    ensure!(sample.name.starts_with(&current), "{line} is not of {current}");
                    scrape.family(&current)?.samples.push(sample);
                }
            }
        }
        bail!("the text breaks off")
    }

    /// The sum of the samples of this name with these labels; none when there is no such sample.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values: Vec<f64> = self.samples(name, labels).map(|sample| sample.value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    pub fn samples<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        let fits = move |s: &&Sample| {
            s.name == name && labels.iter().all(|(label, value)| s.labels.get(*label).is_some_and(|v| v == value))
        };
        self.families.values().flat_map(|family| &family.samples).filter(fits)
    }

    fn family(&mut self, name: &str) -> anyhow::Result<&mut Family> {
        self.families.get_mut(name).with_context(|| format!("{name} has no help"))
    }
}

/// `name{label="value",…} value # {trace_id="…"} value`, labels and exemplar being optional.
fn sample(line: &str) -> Option<Sample> {
    let (line, exemplar) = line.split_once(" # ").map_or((line, None), |(line, exemplar)| (line, Some(exemplar)));
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let trace_id = exemplar.and_then(|e| e.split('"').nth(1)).map(str::to_owned);
    Some(Sample {
        name: name.to_owned(),
        labels: pairs(labels.strip_suffix('}')?)?,
        value: value.parse().ok()?,
        trace_id,
    })
}

/// No label value of the suite contains a quotation mark.
fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let mut parts = text.split('"');
    let mut pairs = BTreeMap::new();
    while let Some(name) = parts.next().filter(|name| !name.is_empty()) {
        let name = name.trim_start_matches(',').strip_suffix('=')?;
        pairs.insert(name.to_owned(), parts.next()?.to_owned());
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_read_with_its_labels_and_exemplars() {
        let text = "# HELP hop_seconds A hop.\n# TYPE hop_seconds histogram\n# UNIT hop_seconds seconds\n\
                    hop_seconds_bucket{le=\"0.1\",step=\"a,b\"} 3 # {trace_id=\"4bf9\"} 0.05\nhop_seconds_sum{} 0.5\n\
                    # HELP up Up.\n# TYPE up gauge\nup 1\n# EOF\n";
        let scrape = Scrape::parse(text).unwrap();
        let bucket = scrape.samples("hop_seconds_bucket", &[("step", "a,b")]).next().unwrap();
        assert_eq!((bucket.value, bucket.trace_id.as_deref()), (3.0, Some("4bf9")));
        assert_eq!(bucket.labels["le"], "0.1");
        assert_eq!(scrape.sum("up", &[]), Some(1.0));
        assert_eq!(scrape.sum("hop_seconds_bucket", &[("step", "c")]), None);
        assert_eq!(scrape.families["hop_seconds"].help, "A hop");
        assert!(Scrape::parse("# HELP up Up.\n# TYPE up gauge\nup 1\n").is_err());
    }
}
