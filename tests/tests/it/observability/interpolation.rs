//! Variables and macros, substituted in queries as by Grafana; only the syntax that the boards use.

use std::collections::BTreeMap;

use anyhow::bail;

use super::boards::{Language, Variable};
use crate::prelude::*;

/// The time range of a dashboard, and the scrape interval of Prometheus; in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) scrape: f64,
}

/// The values of a dashboard's variables.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen(BTreeMap<String, String>);

impl Chosen {
    /// Chooses a dashboard's initial values: all, if the variable has that, else its first value.
    pub(super) fn choose(&mut self, variable: &Variable, values: Vec<String>) -> anyhow::Result<()> {
        let all = variable.all_value.clone().filter(|_| variable.include_all);
        let choice = all.or_else(|| values.into_iter().next());
        let choice = choice.with_context(|| format!("{} has no value to choose", variable.name))?;
        self.0.insert(variable.name.clone(), choice);
        Ok(())
    }

    /// The query with every variable substituted: `$name`, `${name}` or `${name:raw}`. Other variables and macros are errors.
    pub(super) fn put_into(&self, text: &str, language: Language, step: f64, times: Times) -> anyhow::Result<String> {
        let mut text = match language {
            Language::PromQl => text.to_owned(),
            Language::Sql => macros(text, times)?,
        };
        let chosen = self.0.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let mut values: Vec<(&str, String)> = built_in(step, times).into_iter().chain(chosen).collect();
        // One name may be the prefix of another.
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in values {
            for written in [format!("${{{name}}}"), format!("${{{name}:raw}}"), format!("${name}")] {
                text = text.replace(&written, &value);
            }
        }
        // `$1` is a group of a regular expression, a single `$` its end.
        let left = text
            .split('$')
            .skip(1)
            .find(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || "_{".contains(c)));
        ensure!(left.is_none() && !text.contains("[["), "what is ${} in {text}?", left.unwrap_or("[["));
        Ok(text)
    }
}

/// The step of a range query: what a panel of a thousand points needs, but at least a scrape interval or the panel's own step.
pub(super) fn step(interval: Option<&str>, times: Times) -> anyhow::Result<f64> {
    let least = interval.map(|least| seconds(least.trim_start_matches('>'))).transpose()?.unwrap_or(0.0);
    Ok(((times.to - times.from) / 1000.0).max(least).max(times.scrape).ceil())
}

fn seconds(duration: &str) -> anyhow::Result<f64> {
    let unit = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let found = unit.iter().find_map(|(name, unit)| Some(duration.strip_suffix(name)?.parse::<f64>().ok()? * unit));
    found.with_context(|| format!("{duration} is no time"))
}

fn built_in(step: f64, times: Times) -> [(&'static str, String); 4] {
    let range = (times.to - times.from).round();
    // As in Grafana's documentation of `$__rate_interval`.
    let rate = (step + times.scrape).max(4.0 * times.scrape);
    [
        ("__interval", format!("{step}s")),
        ("__rate_interval", format!("{rate}s")),
        ("__range", format!("{range}s")),
        ("__range_s", format!("{range}")),
    ]
}

/// The macros of Grafana's PostgreSQL datasource.
fn macros(sql: &str, times: Times) -> anyhow::Result<String> {
    let [from, to] = [times.from, times.to].map(|at| format!("to_timestamp({at})"));
    let mut sql = sql.replace("$__timeFrom()", &from).replace("$__timeTo()", &to);
    while let Some((before, rest)) = sql.split_once("$__timeFilter(") {
        let Some((column, after)) = rest.split_once(')') else { bail!("$__timeFilter is not closed") };
        sql = format!("{before}{column} between {from} and {to}{after}");
    }
    Ok(sql)
}

#[test]
fn variables_are_substituted_and_unknown_ones_refused() {
    let times = Times { from: 1_000.0, to: 1_120.0, scrape: 1.0 };
    let mut chosen = Chosen::default();
    let (name, all_value) = ("service".to_owned(), Some(".*".to_owned()));
    let (kind, query) = (String::new(), String::new());
    let variable = Variable { name, kind, query, language: Language::PromQl, include_all: true, all_value };
    chosen.choose(&variable, Vec::new()).expect("chosen");
    let put = |language, text: &str| chosen.put_into(text, language, 1.0, times);
    let promql = |text: &str| put(Language::PromQl, text).expect("put in");
    assert_eq!(promql(r#"x{a=~"$service", b=~"${service:raw}"}"#), r#"x{a=~".*", b=~".*"}"#);
    assert_eq!(
        promql("rate(x[$__rate_interval]) + y[$__range] / $__range_s + z[${__interval}]"),
        "rate(x[4s]) + y[120s] / 120 + z[1s]"
    );
    let groups = r#"label_replace(x{a=~"b$"}, "c", "$1", "d", "(.*)")"#;
    assert_eq!(promql(groups), groups);
    assert!(put(Language::PromQl, "x{a=\"$unknown\"}").is_err() && put(Language::PromQl, "[[service]]").is_err());
    let sql = put(Language::Sql, "$__timeFilter(t) and u < $__timeTo()").expect("put in");
    assert_eq!(sql, "t between to_timestamp(1000) and to_timestamp(1120) and u < to_timestamp(1120)");
    assert_eq!([step(Some("30s"), times).expect("a step"), step(None, times).expect("a step")], [30.0, 1.0]);
}
