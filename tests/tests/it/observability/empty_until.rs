//! The queries that return nothing in normal operation, as grafana/empty_until.json lists them, each with the cause that makes it
//! return data.

use serde::Deserialize;

use super::boards::{Asker, Query};
use crate::{prelude::*, sources::read};

/// The list.
#[derive(Deserialize)]
pub(super) struct EmptyUntil {
    queries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// A board's uid, or `*` for all.
    board: String,
    #[serde(flatten)]
    asker: Asker,
    /// The cause.
    until: String,
}

impl EmptyUntil {
    pub(super) fn read() -> anyhow::Result<EmptyUntil> {
        Ok(serde_json::from_str(&read("grafana/empty_until.json")?)?)
    }

    /// The cause that makes the query return data, if it returns none in normal operation.
    pub(super) fn cause(&self, query: &Query) -> Option<&str> {
        self.queries.iter().find(|entry| entry.means(query)).map(|entry| &*entry.until)
    }

    /// Every entry matches a query, and names an existing cause.
    pub(super) fn check<'a>(&self, queries: impl Iterator<Item = &'a Query> + Clone, causes: &[&str]) -> Test {
        for entry in &self.queries {
            let Entry { board, asker, until } = entry;
            ensure!(queries.clone().any(|query| entry.means(query)), "{board} {asker:?} is listed, but is no query");
            ensure!(causes.contains(&&**until), "{board} {asker:?} names the unknown cause {until}");
        }
        Ok(())
    }
}

impl Entry {
    fn means(&self, query: &Query) -> bool {
        (self.board == "*" || self.board == query.board) && self.asker == query.asker
    }
}
