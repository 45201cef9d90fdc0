//! The dashboards as files: their panels, variables, annotations and every query in them.

use serde::Deserialize;

use crate::{
    prelude::*,
    sources::{files, read},
};

/// One dashboard.
pub(super) struct Board {
    pub(super) file: String,
    pub(super) json: Value,
}

/// The language of a query, which determines its datasource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    PromQl,
    Sql,
}

/// The panel or rule of a query, by its title or name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asker {
    Panel(String),
    Annotation(String),
    Rule(String),
}

/// A query as it is in the file, its variables not substituted.
#[derive(Debug, Clone)]
pub(super) struct Query {
    /// The board's uid; empty for a rule.
    pub(super) board: String,
    pub(super) asker: Asker,
    pub(super) language: Language,
    pub(super) text: String,
    /// An instant query, not a range query.
    pub(super) instant: bool,
    /// A query with exemplars, whose traces can be opened.
    pub(super) exemplar: bool,
    /// The least step, if the panel or the target names one.
    pub(super) interval: Option<String>,
}

/// A template variable.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) kind: String,
    /// The query of a `query` variable; the values of a `custom` one, separated by commas.
    pub(super) query: String,
    pub(super) language: Language,
    pub(super) include_all: bool,
    pub(super) all_value: Option<String>,
}

/// All dashboards of the repository, by the names of their files.
pub(super) fn boards() -> anyhow::Result<Vec<Board>> {
    let board = |path: String| {
        let json = serde_json::from_str(&read(&path)?).with_context(|| path.clone())?;
        Ok(Board { file: path.trim_start_matches("grafana/dashboards/").to_owned(), json })
    };
    let boards: Vec<Board> =
        files("grafana/dashboards", ".json")?.into_iter().map(board).collect::<anyhow::Result<_>>()?;
    ensure!(!boards.is_empty(), "there are no dashboards");
    Ok(boards)
}

/// The files of rules.
pub(super) fn rule_files() -> anyhow::Result<Vec<String>> {
    let mut files = files("grafana/alerts", ".yml")?;
    files.retain(|file| !file.contains("/tests/"));
    Ok(files)
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_owned)
}

impl Board {
    pub(super) fn title(&self) -> &str {
        self.json["title"].as_str().unwrap_or(&self.file)
    }

    /// All panels, including those in collapsed rows, without the rows themselves.
    pub(super) fn panels(&self) -> impl Iterator<Item = &Value> {
        let all = items(&self.json, "panels").flat_map(|panel| std::iter::once(panel).chain(items(panel, "panels")));
        all.filter(|panel| panel["type"] != "row")
    }

    /// Panels that share a grid: those at the top, and those of each row.
    pub(super) fn grids(&self) -> Vec<Vec<&Value>> {
        let rows = items(&self.json, "panels").map(|row| items(row, "panels").collect());
        std::iter::once(items(&self.json, "panels").collect()).chain(rows).collect()
    }

    pub(super) fn annotations(&self) -> impl Iterator<Item = &Value> {
        items(&self.json["annotations"], "list")
    }

    pub(super) fn variables(&self) -> anyhow::Result<Vec<Variable>> {
        items(&self.json["templating"], "list").map(variable).collect()
    }

    /// Every query of panels and annotations.
    ///
    /// # Errors
    /// When the file holds one in an unknown place.
    pub(super) fn queries(&self) -> anyhow::Result<Vec<Query>> {
        let mut found = Vec::new();
        for panel in self.panels() {
            for target in items(panel, "targets") {
                let asker = Asker::Panel(text(panel, "title").unwrap_or_default());
                let interval = text(target, "interval").or_else(|| text(panel, "interval"));
                found.extend(self.query(asker, target, interval));
            }
        }
        for annotation in self.annotations() {
            let asker = Asker::Annotation(text(annotation, "name").unwrap_or_default());
            found.extend(self.query(asker.clone(), annotation, None));
            found.extend(self.query(asker, &annotation["target"], None));
        }
        let written = count(&self.json, "expr") + count(&self.json, "rawSql");
        ensure!(written == found.len(), "{}: {written} queries are written, {} are found", self.file, found.len());
        Ok(found)
    }

    fn query(&self, asker: Asker, target: &Value, interval: Option<String>) -> Option<Query> {
        let board = text(&self.json, "uid").unwrap_or_default();
        let instant = target["instant"] == true && target["range"] != true;
        let interval = interval.filter(|interval| !interval.is_empty());
        let exemplar = target["exemplar"] == true;
        let found = |language, text| Query { board, asker, language, text, instant, exemplar, interval };
        match (text(target, "expr"), text(target, "rawSql")) {
            (Some(promql), _) => Some(found(Language::PromQl, promql)),
            (None, Some(sql)) => Some(found(Language::Sql, sql)),
            (None, None) => None,
        }
    }
}

fn variable(variable: &Value) -> anyhow::Result<Variable> {
    let name = text(variable, "name").context("a variable without a name")?;
    let inner = |key| text(&variable["query"], key).or_else(|| text(variable, "definition"));
    let query = text(variable, "query").or_else(|| inner("query")).or_else(|| inner("rawSql")).unwrap_or_default();
    let is_sql = variable["datasource"]["type"].as_str().is_some_and(|kind| kind.contains("postgres"));
    Ok(Variable {
        kind: text(variable, "type").with_context(|| format!("variable {name} has no type"))?,
        language: if is_sql { Language::Sql } else { Language::PromQl },
        include_all: variable["includeAll"] == true,
        all_value: text(variable, "allValue").filter(|value| !value.is_empty()),
        name,
        query,
    })
}

/// The number of occurrences of a key with a text value.
fn count(value: &Value, key: &str) -> usize {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| usize::from(name == key && member.is_string()) + count(member, key))
            .sum(),
        Value::Array(values) => values.iter().map(|value| count(value, key)).sum(),
        _ => 0,
    }
}
