//! Sends every query as Grafana would, and reports those without data.

use anyhow::bail;
use sqlx::{AssertSqlSafe, PgPool};
use suite_tests::{PrometheusApi, Rule, Series, Span};

use super::{
    boards::{Asker, Board, Language, Query, Variable},
    interpolation::{Chosen, Times, step},
};
use crate::prelude::*;

/// The addresses of the datasources.
pub(super) struct Sources {
    pub(super) prometheus: PrometheusApi,
    /// As the role that Grafana has.
    pub(super) auditor: PgPool,
}

impl Sources {
    /// The initial values of the board's variables.
    pub(super) async fn choices(&self, board: &Board, times: Times) -> anyhow::Result<Chosen> {
        let mut chosen = Chosen::default();
        for variable in board.variables()? {
            let values = self.values(&variable, &chosen, times).await;
            let values = values.with_context(|| format!("{} / variable {}", board.title(), variable.name))?;
            chosen.choose(&variable, values).with_context(|| board.title().to_owned())?;
        }
        Ok(chosen)
    }

    async fn values(&self, variable: &Variable, chosen: &Chosen, times: Times) -> anyhow::Result<Vec<String>> {
        let listed = || variable.query.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>();
        match &*variable.kind {
            "custom" | "interval" | "constant" => return Ok(listed()),
            "textbox" => return Ok(vec![variable.query.clone()]),
            "query" => {}
            other => bail!("variables of the type {other} are not known here"),
        }
        let query = chosen.put_into(&variable.query, variable.language, times.scrape, times)?;
        let values = match variable.language {
            Language::Sql => sqlx::query_scalar(AssertSqlSafe(query.clone())).fetch_all(&self.auditor).await?,
            Language::PromQl => {
                let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
                let inner = inner.with_context(|| format!("only label_values is known here, not {query}"))?;
                let (selector, label) = inner.rsplit_once(',').map_or((None, inner), |(s, l)| (Some(s.trim()), l));
                self.prometheus.label_values(selector, label.trim()).await?
            }
        };
        ensure!(!values.is_empty(), "{query} has no values");
        Ok(values)
    }

    /// Why the query returns no data, if it does not.
    pub(super) async fn unanswered(&self, query: &Query, chosen: &Chosen, times: Times) -> Option<String> {
        let reason = match self.answers(query, chosen, times).await {
            Ok(true) => return None,
            Ok(false) => "No data".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        Some(format!("{} {:?}: {reason}: {}", query.board, query.asker, query.text))
    }

    pub(super) async fn exemplars(&self, query: &Query, chosen: &Chosen, times: Times) -> anyhow::Result<Vec<Value>> {
        let step = step(query.interval.as_deref(), times)?;
        let text = chosen.put_into(&query.text, query.language, step, times)?;
        self.prometheus.exemplars(&text, Span { from: times.from, to: times.to, step }).await
    }

    async fn answers(&self, query: &Query, chosen: &Chosen, times: Times) -> anyhow::Result<bool> {
        let step = step(query.interval.as_deref(), times)?;
        let text = chosen.put_into(&query.text, query.language, step, times)?;
        match query.language {
            Language::Sql => Ok(!sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&self.auditor).await?.is_empty()),
            Language::PromQl if query.instant => Ok(has_data(&self.prometheus.instant(&text).await?)),
            Language::PromQl => {
                let span = Span { from: times.from, to: times.to, step };
                Ok(has_data(&self.prometheus.range(&text, span).await?))
            }
        }
    }
}

/// A panel draws finite numbers only.
pub(super) fn has_data(answer: &[Series]) -> bool {
    answer.iter().any(|series| series.values.iter().any(|value| value.is_finite()))
}

/// What a rule records, or what an alert compares with its threshold.
pub(super) fn of_rule(rule: Rule) -> anyhow::Result<Query> {
    ensure!(rule.error.is_empty(), "rule {}: {}", rule.name, rule.error);
    let text = if rule.kind == "alerting" { compared(&rule.query)?.to_owned() } else { rule.query };
    let (board, asker, language) = (String::new(), Asker::Rule(rule.name), Language::PromQl);
    Ok(Query { board, asker, language, text, instant: true, exemplar: false, interval: None })
}

/// The expression that an alert compares with its threshold: a silent alert is meaningful only if this has a value.
fn compared(alert: &str) -> anyhow::Result<&str> {
    let operators = [" > ", " < ", " >= ", " <= ", " == ", " != "];
    let parts = operators.iter().find_map(|operator| alert.rsplit_once(operator));
    let (left, threshold) = parts.with_context(|| format!("{alert} compares nothing with a number"))?;
    ensure!(threshold.trim().parse::<f64>().is_ok(), "{alert} does not end with a number");
    Ok(left)
}
