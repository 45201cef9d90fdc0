//! The page with the latest audit, what needs attention, and the alerts.

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use bootstrap::{Problem, Query};
use maud::{Markup, html};
use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    alerts::{Alert, AlertBook, Status},
    board::{self, Board, Known},
};
use crate::{
    audit::Verdict,
    desk::{Desk, attention, live, page},
};

/// Older verdicts are not current.
const MAX_AGE: time::Duration = time::Duration::minutes(1);

#[derive(Clone)]
struct Shown {
    board: Board,
    alerts: AlertBook,
    desk: Desk,
}

pub(super) fn routes(board: Board, alerts: AlertBook, desk: Desk) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(overview)).with_state(Shown { board, alerts, desk })
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Whether the page stays as it is
    still: bool,
}

/// The latest audit, what needs attention, and the latest alerts, as a page.
#[utoipa::path(get, path = "/", tag = "audit", operation_id = "page", params(Wanted),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn overview(
    State(shown): State<Shown>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let session = shown.desk.session_seen(&headers);
    if wanted.still {
        let note = html! { "This page is as it was loaded. " a href="/" { "Keep it current" } };
        return Ok(page("Overview", session.as_ref(), false, &content(&shown, &note).await).into_response());
    }
    let desk = shown.desk.clone();
    let render = move || {
        let shown = shown.clone();
        async move {
            Ok(content(&shown, &html! { "This page is kept current. " a href="/?still=true" { "Stop that" } }).await)
        }
    };
    live(&desk, &headers, "Overview", session.as_ref(), render).await
}

async fn content(shown: &Shown, note: &Markup) -> Markup {
    let attention = attention(&shown.desk).await;
    let alerts = shown.alerts.latest();
    let (known, now) = (shown.board.read(), board::now());
    html! {
        (audit(&known, &alerts, now))
        p.quiet { (note) }
        (attention.section())
        (alert_list(&alerts))
        (sound(&known, now))
    }
}

/// The overall verdict in one sentence.
fn verdict(known: &Known, alerts: &[Alert], age: Option<time::Duration>) -> Markup {
    let violated = known.verdicts.values().filter(|verdict| verdict.violations > 0).count();
    let firing = alerts.iter().filter(|alert| alert.status == Status::Firing).count();
    let all = known.verdicts.len();
    let totals = known.totals.as_ref().map(|totals| format!(" {totals}")).unwrap_or_default();
    let (class, sentence) = match (age, violated, firing) {
        (None, ..) => ("quiet", "Nothing has been audited yet.".to_owned()),
        (_, 1.., _) => ("bad", format!("{violated} of {all} invariants violated.")),
        _ if !is_current(known, age) => ("bad", "Unknown: the suite is not being audited.".to_owned()),
        (_, 0, 0) => ("good", format!("All {all} invariants hold, and no alert fires.{totals}")),
        (_, 0, _) => ("bad", format!("All {all} invariants hold; alerts that fire: {firing}.{totals}")),
    };
    html! { h1 class={ "verdict " (class) } { (sentence) } }
}

fn is_current(known: &Known, age: Option<time::Duration>) -> bool {
    known.failure.is_none() && age.is_some_and(|age| age < MAX_AGE)
}

fn audit(known: &Known, alerts: &[Alert], now: OffsetDateTime) -> Markup {
    let age = known.audited_at.map(|at| now - at);
    let current = is_current(known, age);
    let violated: Vec<_> = known.verdicts.values().filter(|verdict| verdict.violations > 0).collect();
    html! {
        (verdict(known, alerts, age))
        @if let Some(reason) = &known.failure { p.bad { "The suite cannot be audited now: " (reason) } }
        @if let Some(age) = age {
            p class=(if current { "quiet" } else { "bad" }) {
                (if current { "The" } else { "Not current: the" }) " latest audit ended " (age.whole_seconds()) " s ago and took "
                (known.took.as_millis()) " ms."
            }
            @if !violated.is_empty() { (invariants(&violated, "bad")) }
        }
    }
}

/// The invariants without violations, at the end of the page.
fn sound(known: &Known, now: OffsetDateTime) -> Markup {
    let sound: Vec<_> = known.verdicts.values().filter(|verdict| verdict.violations == 0).collect();
    let current = is_current(known, known.audited_at.map(|at| now - at));
    html! {
        h2 { "Invariants that " (if current { "hold" } else { "held when they were last checked" }) }
        (invariants(&sound, if current { "good" } else { "quiet" }))
    }
}

fn invariants(verdicts: &[&Verdict], class: &str) -> Markup {
    html! {
        table {
            thead { tr { th { "Invariant" } th.number { "Violations" } th.number { "Left out" } th { "Meaning" } } }
            tbody {
                @for verdict in verdicts {
                    tr {
                        td { (verdict.name) }
                        td class={ "number " (class) } data-name="Violations" { (verdict.violations) }
                        td.number.quiet data-name="Left out" { (verdict.left_out.len()) }
                        td {
                            (verdict.sentence)
                            @if !verdict.examples.is_empty() { ul { @for example in &verdict.examples { li { (example) } } } }
                        }
                    }
                }
            }
        }
    }
}

fn alert_list(alerts: &[Alert]) -> Markup {
    html! {
        h2 { "Alerts" }
        @if alerts.is_empty() {
            p { "None so far." }
        } @else {
            table {
                thead { tr { th { "Status" } th { "Alert" } th { "Severity" } th { "Since" } th { "Until" } th { "Summary" } } }
                tbody { @for alert in alerts { (alert_row(alert)) } }
            }
        }
        p { a href="/alerts" { "As JSON" } }
    }
}

fn alert_row(alert: &Alert) -> Markup {
    let class = if alert.status == Status::Firing { "bad" } else { "good" };
    let of = |key: &str| alert.annotations.get(key).or_else(|| alert.labels.get(key)).map_or("", String::as_str);
    html! {
        tr {
            td class=(class) data-name="Status" { (alert.status.as_str()) }
            td data-name="Alert" { a href={ "/runbook#" (alert.name) } { (alert.name) } }
            td data-name="Severity" { (of("severity")) }
            td data-name="Since" { (rfc3339(Some(alert.starts_at))) }
            td data-name="Until" { (rfc3339(alert.ends_at)) }
            td data-name="Summary" { (of("summary")) }
        }
    }
}

fn rfc3339(at: Option<OffsetDateTime>) -> String {
    let whole = at.and_then(|at| at.replace_nanosecond(0).ok());
    whole.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::{Report, Violations};

    fn shown(board: &Board, now: OffsetDateTime) -> String {
        let known = board.read();
        html! { (audit(&known, &[], now)) (sound(&known, now)) }.into_string()
    }

    fn report(violations: Violations, took: Duration) -> Report {
        Report::new(vec![Verdict::new("stock_conserved", "All adds up.", violations)], took)
    }

    #[test]
    fn violations_are_shown_with_escaped_examples() {
        let found: Violations = ["<b>lost & found</b>".to_owned()].into_iter().collect();
        let board = Board::default();
        board.audited(report(found, Duration::ZERO), Duration::from_millis(7));
        board.failed("no database".to_owned());
        let html = shown(&board, board::now());
        assert!(html.contains(r#"stock_conserved</td><td class="number bad" data-name="Violations">1"#), "{html}");
        assert!(html.contains("&lt;b&gt;lost &amp; found&lt;/b&gt;") && !html.contains("<b>"), "{html}");
        assert!(html.contains("1 of 1 invariants violated."), "{html}");
        assert!(html.contains("took 7 ms") && html.contains("cannot be audited now: no database"), "{html}");
    }

    #[test]
    fn a_verdict_that_is_not_current_is_never_green() {
        let board = Board::default();
        assert!(shown(&board, board::now()).contains("Nothing has been audited yet"));
        board.audited(report(Violations::default(), Duration::ZERO), Duration::ZERO);
        let green = r#"<td class="number good" data-name="Violations">0"#;
        let html = shown(&board, board::now());
        assert!(html.contains(green) && !html.contains("Not current"), "{html}");
        assert!(html.contains("All 1 invariants hold, and no alert fires."), "{html}");
        let later = shown(&board, board::now() + MAX_AGE);
        assert!(!later.contains(green) && later.contains("Not current") && later.contains("Unknown"), "{later}");
        board.failed("no database".to_owned());
        let html = shown(&board, board::now());
        assert!(!html.contains(green) && html.contains("Not current"), "{html}");
    }
}
