//! Pagination: `?limit=` and an opaque `?cursor=`, the sort key of the last item in hexadecimal. Keyset pages stay stable while
//! rows are added, and cost the same at any depth. A filter without an index scans a limited number of rows per page.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::{IntoParams, ToSchema};

use super::Problem;

/// The most rows scanned for one page, however few of them match a filter.
const MAX_SCANNED_ROWS: u16 = 5_000;

/// `?limit=&cursor=`; combined with a list's own filter in [`Filtered`](super::Filtered).
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Items per page: 1 to 200, 20 by default.
    #[serde(default = "default_limit", deserialize_with = "limit")]
    #[param(value_type = Option<i32>, minimum = 1, maximum = 200, default = 20)]
    limit: u16,
    /// `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(pattern = "^([0-9a-f]{2})+$")]
    cursor: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Page<T> {
    /// The items, in the order that the list's description names.
    pub items: Vec<T>,
    /// Where the next page begins; null on the last one.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

impl PageQuery {
    /// Rows to select: one more than a page holds, so that [`Page::from_rows`] sees whether there is another page.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Rows to scan when a filter matches only some of them, for [`Page::from_walk`].
    pub fn walk(&self) -> i64 {
        i64::from(MAX_SCANNED_ROWS)
    }

    /// The sort key after which the page begins; `None` for the first page.
    ///
    /// # Errors
    /// 422 when the cursor does not hold such a key.
    pub fn after<K: FromStr>(&self) -> Result<Option<K>, Problem> {
        let Some(key) = &self.cursor else { return Ok(None) };
        key.parse().map(Some).map_err(|_| Problem::invalid("/cursor", BAD_CURSOR))
    }
}

impl<T> Page<T> {
    /// A page of the rows selected with [`PageQuery::rows`]; `key` returns the sort key for [`PageQuery::after`].
    pub fn from_rows<K: fmt::Display>(mut rows: Vec<T>, query: &PageQuery, key: impl Fn(&T) -> K) -> Self {
        let limit = usize::from(query.limit);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more);
        let next_cursor = last.map(|row| encode(&key(row).to_string()));
        Self { items: rows, next_cursor }
    }

    /// A page of the rows that match a filter (`true`). When as many rows were scanned as [`PageQuery::walk`] allows, the next
    /// page starts after the last of them: a page may be short or empty and still have a next one.
    pub fn from_walk<K: fmt::Display>(walked: Vec<(T, bool)>, query: &PageQuery, key: impl Fn(&T) -> K) -> Self {
        let limit = usize::from(query.limit) + 1;
        let cut_short = walked.len() >= usize::from(MAX_SCANNED_ROWS);
        let last = walked.last().filter(|_| cut_short).map(|(row, _)| encode(&key(row).to_string()));
        let taken = walked.into_iter().filter_map(|(row, taken)| taken.then_some(row)).take(limit).collect();
        let page = Self::from_rows(taken, query, key);
        Self { next_cursor: page.next_cursor.or(last), ..page }
    }

    /// Maps the items, for example rows to their JSON form.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(convert).collect(), next_cursor: self.next_cursor }
    }
}

const BAD_CURSOR: &str = "must be the `next_cursor` of an earlier page of this list";

/// The opaque form of a sort key.
fn encode(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(text: &str) -> Option<String> {
    // A radix parser would also accept capitals and signs, which `encode` never writes.
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.bytes().all(is_hex) {
        return None;
    }
    let bytes: Option<Vec<u8>> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok().filter(|key| !key.contains('\0'))
}

fn cursor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).map(Some).ok_or_else(|| de::Error::custom(BAD_CURSOR))
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let text = String::deserialize(deserializer)?;
    let items = text.parse().ok().filter(|items: &u16| (1..=200).contains(items));
    items.ok_or_else(|| de::Error::custom("must be a number from 1 to 200"))
}

fn default_limit() -> u16 {
    20
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{extract::FromRequestParts as _, http::Request};

    use super::*;
    use crate::http::Query;

    async fn query(uri: &str) -> Result<PageQuery, Problem> {
        let (mut parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        Query::<PageQuery>::from_request_parts(&mut parts, &()).await.map(|Query(query)| query)
    }

    #[tokio::test]
    async fn cursors_lead_to_the_end_of_a_list() {
        let all: Vec<u32> = (1..=5).rev().collect();
        let mut uri = "/orders?limit=2".to_owned();
        let mut seen = Vec::new();
        loop {
            let query = query(&uri).await.unwrap();
            let after: Option<u32> = query.after().unwrap();
            let take = usize::try_from(query.rows()).unwrap();
            let left = all.iter().copied().filter(|id| after.is_none_or(|after| *id < after));
            let page = Page::from_rows(left.take(take).collect(), &query, |id| *id);
            seen.extend(page.items);
            let Some(cursor) = page.next_cursor else { break };
            uri = format!("/orders?limit=2&cursor={cursor}");
        }
        assert_eq!(seen, all);
    }

    #[tokio::test]
    async fn a_sparse_filter_reaches_the_end_of_the_list() {
        let all: Vec<u16> = (1..=2 * MAX_SCANNED_ROWS + 7).rev().collect();
        let wanted = [2 * MAX_SCANNED_ROWS + 6, MAX_SCANNED_ROWS + 5, MAX_SCANNED_ROWS + 3, MAX_SCANNED_ROWS + 1, 2];
        let (mut uri, mut pages) = ("/orders?limit=2".to_owned(), Vec::new());
        loop {
            let query = query(&uri).await.unwrap();
            let after: Option<u16> = query.after().unwrap();
            let left = all.iter().copied().filter(|id| after.is_none_or(|after| *id < after));
            let walked = left.take(usize::try_from(query.walk()).unwrap()).map(|id| (id, wanted.contains(&id)));
            let page = Page::from_walk(walked.collect(), &query, |id| *id);
            pages.push(page.items);
            let Some(cursor) = page.next_cursor else { break };
            uri = format!("/orders?limit=2&cursor={cursor}");
        }
        assert_eq!(pages, [vec![wanted[0]], vec![wanted[1], wanted[2]], vec![wanted[3]], vec![wanted[4]]]);
    }

    #[tokio::test]
    async fn the_default_page_has_twenty_items() {
        assert_eq!(query("/orders").await.unwrap().rows(), 21);
    }

    #[tokio::test]
    async fn a_limit_out_of_range_is_422() {
        for limit in ["0", "201", "-1", "many", ""] {
            let problem = query(&format!("/orders?limit={limit}")).await.unwrap_err();
            assert_eq!(problem.status.as_u16(), 422);
            assert_eq!(problem.errors[0].pointer, "/limit");
        }
    }

    #[tokio::test]
    async fn an_invalid_cursor_is_422() {
        for cursor in ["zz", "abc", "ff", "00", "%2B1", "6A", "%C3%A4%C3%A4"] {
            let problem = query(&format!("/orders?cursor={cursor}")).await.unwrap_err();
            assert_eq!(problem.errors[0].pointer, "/cursor");
        }
        let other = query(&format!("/orders?cursor={}", encode("text"))).await.unwrap();
        assert_eq!(other.after::<u32>().unwrap_err().status.as_u16(), 422);
    }
}
