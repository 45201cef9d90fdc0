//! The journey of one order: the explanation first, then each step with its hops and the states after it, and what is left.

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use bootstrap::Problem;
use maud::{Markup, html};
use saga::Trigger;
use time::{Duration, OffsetDateTime, macros::format_description};
use uuid::Uuid;

use super::{
    Desk, live,
    orders::{class_of, encoded, money},
    session::Session,
    unreadable,
};
use crate::{
    journey::{self, DeadLetter, Entry, Hit, Journey, Left, Publication, Reader, States},
    suite::Explanation,
};

/// Everything that is known of one order.
#[utoipa::path(get, path = "/orders/{id}", tag = "desk", operation_id = "journey_page",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(desk): State<Desk>,
    Path(order_id): Path<Uuid>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let session = desk.session(&headers);
    let (may_act, may_read) = (session.as_ref().is_some_and(Session::may_act), session.is_some());
    let shared = desk.clone();
    let render = move || {
        let desk = shared.clone();
        async move {
            let journey = journey::find(&desk.pool, order_id).await.map_err(|error| unreadable(&error))?;
            let journey = journey.ok_or_else(|| Problem::not_found(format!("There is no order {order_id}.")))?;
            let explanation = desk.suite.explain(order_id).await.ok();
            Ok(shown(&journey, explanation.as_ref(), may_act, may_read))
        }
    };
    live(&desk, &headers, &format!("Order {order_id}"), session.as_ref(), render).await
}

fn shown(journey: &Journey, explanation: Option<&Explanation>, may_act: bool, may_read: bool) -> Markup {
    let order = &journey.order;
    html! {
        h1 { "Order " code { (order.order_id) } }
        (explained(explanation))
        (facts(journey))
        @if may_act && journey.saga.as_ref().is_some_and(|saga| matches!(saga.status.as_str(), "FAILED" | "COMPENSATING")) {
            p { a.act href={ "/operations/resume_saga?id=" (order.saga_id) } { "Resume the saga" } }
        }
        h2 { "Steps" }
        @if journey.entries.len() > 1 {
            div.travel hidden {
                label { "As it was after" input type="range" min="1" max=(journey.entries.len()) value=(journey.entries.len()); }
                output {}
            }
        }
        ol.journey {
            @for (at, entry) in journey.entries.iter().enumerate() {
                (step(entry, at.checked_sub(1).map(|before| &journey.entries[before]), may_read))
            }
            @for left in &journey.left { (still_left(left)) }
        }
        @if journey.saga.is_none() { p.quiet { "Its saga is purged, and its journal with it." } }
        (dead_letters(order.saga_id, &journey.dead_letters, may_act, may_read))
        (hits(&journey.hits))
        h2 { "Lines" }
        table {
            thead { tr { th { "Product" } th.number { "Quantity" } th.number { "Unit price" } } }
            tbody {
                @for line in &journey.lines {
                    tr {
                        td data-name="Product" { (line.sku) }
                        td.number data-name="Quantity" { (line.quantity) }
                        td.number data-name="Unit price" { (money(line.unit_price, &order.currency)) }
                    }
                }
            }
        }
    }
}

fn explained(explanation: Option<&Explanation>) -> Markup {
    let Some(Explanation { summary, findings }) = explanation else {
        return html! { div.box.bad { "order does not answer, so it cannot explain what this order waits for." } };
    };
    let class = if findings.is_empty() { "good" } else { "wait" };
    html! {
        div class={ "box " (class) } {
            p { (summary) }
            @for finding in findings {
                // The summary repeats the first one.
                @if !summary.contains(&finding.what) { p { (finding.what) } }
                @if let Some(remedy) = &finding.remedy { p { b { (remedy.what) } } }
            }
        }
    }
}

fn facts(Journey { order, saga, .. }: &Journey) -> Markup {
    let fact = |name: &str, value: Markup| html! { li { b { (name) } (value) } };
    let status = |of: Option<&str>| html! { span class=(class_of(of.unwrap_or(""))) { (of.unwrap_or("none")) } };
    html! {
        ul.facts {
            (fact("Customer", html! { a href={ "/orders?q=" (encoded(&order.customer_id)) } { (order.customer_id) } }))
            (fact("Order", status(Some(&order.status))))
            @if let Some(saga) = saga { (fact("Saga", status(Some(&saga.status)))) }
            (fact("Stock", status(order.stock_status.as_deref())))
            (fact("Payment", html! {
                (status(order.payment_status.as_deref()))
                @if let Some(code) = &order.decline_code { " (" (code) ")" }
            }))
            (fact("Total", html! { (money(order.total_amount, &order.currency)) }))
            (fact("Placed", html! { (moment(order.created_at)) }))
            @if let Some(saga) = saga {
                @match saga.completed_at {
                    Some(ended) => (fact("Took", html! { (took(ended - saga.started_at)) })),
                    None => (fact("Deadline", html! { (moment(saga.compensation_deadline.unwrap_or(saga.deadline))) })),
                }
                @if !saga.receipts_due.is_empty() { (fact("To be undone by", html! { (saga.receipts_due.join(", ")) })) }
                @if saga.compensation_attempts > 0 {
                    (fact("Compensation retried", html! { (saga.compensation_attempts) " times" }))
                }
                @if let Some(reason) = &saga.failure_reason { (fact("Reason", html! { (reason) })) }
                (fact("Trace", html! { code { (saga.trace_id) } }))
                (fact("Correlation", html! { code { (saga.correlation_id) } }))
            }
        }
    }
}

/// One entry; `before` is the one before it.
fn step(entry: &Entry, before: Option<&Entry>, may_read: bool) -> Markup {
    let class = match entry.status.as_str() {
        "FAILED" => "refused",
        "SKIPPED" => "skipped",
        _ if entry.direction == "COMPENSATION" => "undone",
        _ => "done",
    };
    html! {
        li class=(class) {
            div {
                p.step { (entry.step) }
                p.quiet { (entry.service) @if let Some(before) = before { " · +" (took(entry.occurred_at - before.occurred_at)) } }
            }
            div {
                p {
                    @match entry.event_id.filter(|_| may_read) {
                        Some(id) => a href={ "/events/" (entry.service) "/" (id) } { (entry.event_type) },
                        None => (entry.event_type),
                    }
                    @if let Some(what) = outcome(entry) { " · " (what) }
                }
                @if let Some(reason) = &entry.reason { p { (reason) } }
                @if let Some(fault) = &entry.fault { p.bad { "hit by the fault " (fault) } }
                (way(entry))
                @if !entry.undone_by.is_empty() && entry.status == "COMPLETED" {
                    p.quiet { "undone by " (entry.undone_by.join(" or ")) }
                }
            }
            (states(&entry.after, before.map(|before| &before.after)))
        }
    }
}

/// A deadline that passed and a compensation that was given up are no refusals: their event's name says what they are.
fn outcome(entry: &Entry) -> Option<&'static str> {
    match entry.status.as_str() {
        "FAILED" if journey::step_of(&entry.step).is_some_and(|step| step.on != Trigger::Deadline) => Some("refused"),
        "SKIPPED" => Some("too late: it changed nothing"),
        _ => None,
    }
}

/// The way of the event that the step published.
fn way(entry: &Entry) -> Markup {
    let Some(publication) = &entry.publication else {
        return match entry.event_id {
            Some(_) => html! { p.quiet { "its event is no longer kept" } },
            None => html! {},
        };
    };
    html! {
        @if publication.state == "PUBLISHED" {
            @for reader in &entry.readers { (hop(entry, reader)) }
            @if entry.readers.is_empty() { p.quiet { "published" } }
        } @else {
            (unpublished(publication))
        }
        @if publication.republication > 0 {
            p.bad { "published again (" (publication.republication) "): it was lost, or not answered in time" }
        }
    }
}

fn hop(entry: &Entry, reader: &Reader) -> Markup {
    let Some(hops) = entry.hops(reader) else { return html! {} };
    html! {
        p.quiet {
            "→ " (reader.consumer) ": " (took(hops.outbox)) " in the outbox, " (took(hops.transit)) " to its inbox"
            @match reader.duplicates {
                0 => {},
                1 => ", a duplicate dropped",
                more => { ", " (more) " duplicates dropped" },
            }
        }
    }
}

fn unpublished(publication: &Publication) -> Markup {
    html! {
        p class=(if publication.state == "PARKED" { "bad" } else { "wait" }) {
            @if publication.state == "PARKED" { "parked in the outbox" } @else { "waits in the outbox" }
            @if publication.attempts > 0 { " after " (publication.attempts) " failed attempts" }
            @if let Some(error) = &publication.last_error { ": " (error) }
        }
    }
}

fn states(after: &States, before: Option<&States>) -> Markup {
    let named = |name: &str, now: Option<&str>, was: Option<&str>| {
        let changed = now != was;
        html! {
            dt { (name) }
            dd { span class={ (class_of(now.unwrap_or(""))) @if changed { " changed" } } { (now.unwrap_or("–")) } }
        }
    };
    html! {
        dl.states {
            (named("saga", Some(&after.saga), before.map(|b| b.saga.as_str())))
            (named("order", after.order, before.and_then(|b| b.order)))
            (named("stock", after.stock, before.and_then(|b| b.stock)))
            (named("payment", after.payment, before.and_then(|b| b.payment)))
        }
    }
}

fn still_left(left: &Left) -> Markup {
    html! {
        li.left {
            div { p.step { (left.step) } p.quiet { (left.service.unwrap_or("any service")) } }
            div {
                p.wait { @if left.is_awaited { "awaited" } @else { "later" } }
                @if left.attempts > 0 {
                    p.bad { (left.attempts) " failed attempts" @if let Some(error) = &left.last_error { ": " (error) } }
                }
            }
        }
    }
}

fn dead_letters(saga_id: Uuid, dead_letters: &[DeadLetter], may_act: bool, may_read: bool) -> Markup {
    html! {
        @if !dead_letters.is_empty() {
            h2 { "Dead letters" }
            table {
                thead { tr { th { "Step" } th { "Event" } th { "Reason" } th.number { "Attempts" } th { "Status" } th { "Act" } } }
                tbody {
                    @for letter in dead_letters {
                        tr {
                            td data-name="Step" { (letter.step) " (" (letter.service) ")" }
                            td data-name="Event" {
                                @if may_read {
                                    a href={ "/dead-letters/" (letter.service) "/" (letter.dead_letter_id) } { (letter.event_type) }
                                } @else { (letter.event_type) }
                            }
                            td data-name="Reason" { (letter.reason) }
                            td.number data-name="Attempts" { (letter.attempts) }
                            td data-name="Status" { (letter.status) }
                            td data-name="Act" {
                                @if may_act && letter.status == "PENDING" {
                                    a.act href={ "/operations/rehearse_replay?service=" (letter.service) "&saga_id=" (saga_id) } { "Try dry" }
                                    " "
                                    @for (name, title) in [("replay_dead_letter", "Replay"), ("discard_dead_letter", "Discard")] {
                                        a.act href={ "/operations/" (name) "?service=" (letter.service) "&id=" (letter.dead_letter_id) } { (title) }
                                        " "
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn hits(hits: &[Hit]) -> Markup {
    html! {
        @if !hits.is_empty() {
            h2 { "Faults that hit it" }
            table {
                thead { tr { th { "At" } th { "Service" } th { "Step" } th { "Point" } th { "Kind" } } }
                tbody {
                    @for hit in hits {
                        tr {
                            td data-name="At" { (moment(hit.hit_at)) }
                            td data-name="Service" { (hit.service) }
                            td data-name="Step" { (hit.step.as_deref().unwrap_or("")) }
                            td data-name="Point" { (hit.point) }
                            td data-name="Kind" { (hit.kind) }
                        }
                    }
                }
            }
        }
    }
}

/// A moment in UTC, to the millisecond.
pub(super) fn moment(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]");
    at.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

/// A duration with three digits or fewer.
fn took(duration: Duration) -> String {
    let ms = duration.as_seconds_f64() * 1000.0;
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..1_000.0 => format!("{ms:.0} ms"),
        ..60_000.0 => format!("{:.1} s", ms / 1000.0),
        _ => format!("{:.0} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_digits_that_matter() {
        let ms = |ms| took(Duration::microseconds(ms));
        assert_eq!([ms(1_230), ms(45_600), ms(1_234_000), ms(75_000_000)], ["1.2 ms", "46 ms", "1.2 s", "75 s"]);
    }
}
