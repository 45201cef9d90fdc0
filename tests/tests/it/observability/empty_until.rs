//! The queries that return nothing in normal operation, as grafana/empty_until.json lists them, each with the cause that makes it
//! return data.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::boards::{Asker, Query};
use crate::{Test, sources::read};

/// The list.
pub(super) struct EmptyUntil(Vec<Entry>);

struct Entry {
    /// A board's uid, or `*` for all.
    board: String,
    asker: Asker,
    cause: String,
}

impl EmptyUntil {
    pub(super) fn read() -> anyhow::Result<EmptyUntil> {
        let list: Value = serde_json::from_str(&read("grafana/empty_until.json")?)?;
        let entries = list["queries"].as_array().context("it lists no queries")?;
        Ok(EmptyUntil(entries.iter().map(entry).collect::<anyhow::Result<_>>()?))
    }

    /// The cause that makes the query return data, if it returns none in normal operation.
    pub(super) fn cause(&self, query: &Query) -> Option<&str> {
        self.0.iter().find(|entry| entry.means(query)).map(|entry| &*entry.cause)
    }

    /// Every entry matches a query, and names an existing cause.
    pub(super) fn check<'a>(&self, queries: impl Iterator<Item = &'a Query> + Clone, causes: &[&str]) -> Test {
        for entry in &self.0 {
            let Entry { board, asker, cause } = entry;
            ensure!(queries.clone().any(|query| entry.means(query)), "{board} {asker:?} is listed, but is no query");
            ensure!(causes.contains(&&**cause), "{board} {asker:?} names the unknown cause {cause}");
        }
        Ok(())
    }
}

impl Entry {
    fn means(&self, query: &Query) -> bool {
        (self.board == "*" || self.board == query.board) && self.asker == query.asker
    }
}

fn entry(entry: &Value) -> anyhow::Result<Entry> {
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    let asker = text("panel").map(Asker::Panel).or_else(|| text("annotation").map(Asker::Annotation));
    Ok(Entry {
        board: text("board").context("an entry without a board")?,
        asker: asker.context("an entry without a panel or an annotation")?,
        cause: text("until").context("an entry without a cause")?,
    })
}
