//! The search: orders by order, saga, customer or correlation id, and by the state, step and age of their sagas.

use std::fmt::Write as _;

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Problem, Query};
use contracts::order_fulfillment::SAGA;
use maud::{Markup, html};
use saga::Status;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{
    Desk, HtmlPage, page,
    store::{self, Filter, Found, Row},
    unreadable,
};

/// What a form sends: each field is there, and empty where nothing was chosen.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// An order's or a saga's id, a customer's, or a correlation id
    q: String,
    saga_status: String,
    /// The step at which the saga failed
    step: String,
    /// Only sagas that began at least this many seconds ago
    older_than: String,
    /// Where the page before ended: a saga, or of a customer an order
    before: Option<Uuid>,
}

/// The orders that match, newest first.
#[utoipa::path(get, path = "/orders", tag = "desk", operation_id = "orders_page", params(Search),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
pub(super) async fn list(
    State(desk): State<Desk>,
    Query(search): Query<Search>,
    headers: HeaderMap,
) -> Result<HtmlPage, Problem> {
    let q = search.q.trim();
    let id = q.parse::<Uuid>().ok();
    let filter = Filter {
        id,
        name: given(q),
        saga_status: given(&search.saga_status),
        failed_at_step: given(&search.step),
        older_than: search.older_than.trim().parse().ok().filter(|s| (0.0..=1e9).contains(s)),
        before: search.before,
    };
    let found = store::find(&desk.pool, &filter).await.map_err(|error| unreadable(&error))?;
    let main = html! { h1 { "Orders" } (form(&search)) (results(&search, &found)) };
    Ok(page("Orders", desk.session(&headers).as_ref(), false, &main))
}

fn given(field: &str) -> Option<&str> {
    Some(field.trim()).filter(|text| !text.is_empty())
}

fn form(search: &Search) -> Markup {
    let choice = |value: &str, chosen: &str| html! { option value=(value) selected[value == chosen] { (value) } };
    html! {
        form.search method="get" action="/orders" {
            label { "Order, saga, customer or correlation id" input name="q" value=(search.q) size="38" autofocus; }
            label {
                "Saga"
                select name="saga_status" {
                    option value="" { "any" }
                    @for status in Status::ALL { (choice(status.as_str(), &search.saga_status)) }
                }
            }
            label {
                "Failed at step"
                select name="step" {
                    option value="" { "any" }
                    @for step in SAGA.steps.iter().filter(|step| step.can_fail_saga()) { (choice(step.name, &search.step)) }
                }
            }
            label { "Older than, in seconds" input name="older_than" value=(search.older_than) inputmode="decimal" size="8"; }
            button { "Search" }
        }
    }
}

fn results(search: &Search, found: &Found) -> Markup {
    html! {
        @if found.rows.is_empty() {
            p { @if found.next.is_some() { "None among the last 5,000 sagas." } @else { "None." } }
        } @else {
            table {
                thead {
                    tr { th { "Order" } th { "Customer" } th { "Status" } th { "Saga" } th.number { "Total" } th { "Placed" }
                        th.number { "Took" } th { "Failed at" } }
                }
                tbody { @for row in &found.rows { (result(row)) } }
            }
        }
        @if let Some(next) = found.next { p { a rel="next" href=(link(search, next)) { "Older ones" } } }
    }
}

fn result(row: &Row) -> Markup {
    let saga = row.saga_status.as_deref().unwrap_or("purged");
    html! {
        tr {
            td data-name="Order" { a href={ "/orders/" (row.order_id) } { code { (row.order_id) } } }
            td data-name="Customer" { (row.customer_id) }
            td data-name="Status" class=(class_of(&row.order_status)) { (row.order_status) }
            td data-name="Saga" class=(class_of(saga)) { (saga) }
            td.number data-name="Total" { (money(row.total_amount, &row.currency)) }
            td data-name="Placed" { (super::journey::moment(row.started_at)) }
            td.number data-name="Took" { @if let Some(ms) = row.ms { (ms) " ms" } }
            td data-name="Failed at" { (row.failed_at_step.as_deref().unwrap_or("")) }
        }
    }
}

fn link(search: &Search, before: Uuid) -> String {
    let mut link = format!("/orders?before={before}");
    for (name, value) in [
        ("q", &search.q),
        ("saga_status", &search.saga_status),
        ("step", &search.step),
        ("older_than", &search.older_than),
    ] {
        if !value.is_empty() {
            let _ = write!(link, "&{name}={}", encoded(value));
        }
    }
    link
}

/// Percent-encoded, but for letters and digits.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        let _ = match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => write!(all, "{}", char::from(byte)),
            _ => write!(all, "%{byte:02X}"),
        };
        all
    })
}

/// An amount in major units. All currencies of the suite have two decimals.
pub(super) fn money(minor: i64, currency: &str) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    format!("{sign}{}.{:02} {currency}", minor.unsigned_abs() / 100, minor.unsigned_abs() % 100)
}

/// One colour for each outcome, on every page.
pub(super) fn class_of(status: &str) -> &'static str {
    match status {
        "CONFIRMED" | "COMPLETED" | "CAPTURED" | "RESERVED" => "good",
        "FAILED" | "TIMED_OUT" | "DECLINED" | "REFUSED" => "bad",
        "CANCELLED" | "COMPENSATING" | "COMPENSATED" | "RELEASED" | "REFUNDED" | "VOIDED" | "TOMBSTONE" => "undo",
        "PENDING" | "STARTED" | "IN_PROGRESS" => "wait",
        _ => "quiet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_the_search() {
        let search = Search { q: "a&b é".to_owned(), saga_status: "FAILED".to_owned(), ..Search::default() };
        let expected = format!("/orders?before={}&q=a%26b%20%C3%A9&saga_status=FAILED", Uuid::nil());
        assert_eq!(link(&search, Uuid::nil()), expected);
    }

    #[test]
    fn what_was_typed_is_shown_as_text() {
        let shown = form(&Search { q: "\"><script>".to_owned(), ..Search::default() }).into_string();
        assert!(shown.contains("&quot;&gt;&lt;script&gt;") && !shown.contains("<script"), "{shown}");
    }

    #[test]
    fn amounts_have_two_decimals() {
        assert_eq!(["0.05 USD", "-1.20 EUR"], [money(5, "USD").as_str(), money(-120, "EUR").as_str()]);
    }
}
