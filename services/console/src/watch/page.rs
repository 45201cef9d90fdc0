//! A page for people: what the latest audits found, and the alerts. It reloads itself and needs nothing from elsewhere.

use std::fmt::{self, Display, Write as _};

use axum::{extract::State, response::Html};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    alerts::{Alert, AlertBook, Status},
    board::{self, Board, Known},
};

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<title>Audit and alerts</title>
<style>
body { font: 16px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff }
table { border-collapse: collapse; margin-bottom: 2rem }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #ddd }
.good { color: #0a6b2d } .bad { color: #b3001b; font-weight: bold } .quiet { color: #666 }
ul { margin: 0; padding-left: 1rem }
</style>
</head>
<body>
"#;

/// Verdicts that are older say little of the suite as it is now.
const MAX_AGE: time::Duration = time::Duration::minutes(1);

#[derive(Clone)]
struct Shown {
    board: Board,
    alerts: AlertBook,
}

pub(super) fn routes(board: Board, alerts: AlertBook) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(page)).with_state(Shown { board, alerts })
}

/// What the latest audits found, and the latest alerts, as a page.
#[utoipa::path(
    get,
    path = "/",
    tag = "audit",
    operation_id = "page",
    responses((status = 200, description = "The page", body = String, content_type = "text/html"))
)]
async fn page(State(shown): State<Shown>) -> Html<String> {
    let mut html = HEAD.to_owned();
    // Writing to a string does not fail.
    let _ = write_audit(&mut html, &shown.board.read(), board::now());
    let _ = write_alerts(&mut html, &shown.alerts.latest());
    html.push_str("</body>\n</html>\n");
    Html(html)
}

fn write_audit(html: &mut String, known: &Known, now: OffsetDateTime) -> fmt::Result {
    writeln!(html, "<h1>Audit</h1>")?;
    if let Some(reason) = &known.failure {
        writeln!(html, r#"<p class="bad">The suite cannot be audited now: {}</p>"#, Escaped(reason))?;
    }
    let Some(age) = known.audited_at.map(|at| now - at) else {
        return writeln!(html, "<p>Nothing has been audited yet.</p>");
    };
    let current = known.failure.is_none() && age < MAX_AGE;
    let (class, stale) = if current { ("quiet", "") } else { ("bad", "Not current: ") };
    write!(html, r#"<p class="{class}">{stale}the latest audit ended {} s ago and "#, age.whole_seconds())?;
    writeln!(html, "took {} ms.</p>", known.took.as_millis())?;
    writeln!(html, "<table>\n<tr><th>Invariant<th>Violations<th>Left out<th>What it says</tr>")?;
    for verdict in known.verdicts.values() {
        let class = match verdict.violations {
            0 if current => "good",
            0 => "quiet",
            _ => "bad",
        };
        write!(html, r#"<tr><td>{}<td class="{class}">{}"#, Escaped(verdict.name), verdict.violations)?;
        write!(html, r#"<td class="quiet">{}<td>{}"#, verdict.left_out.len(), Escaped(&verdict.sentence))?;
        if !verdict.examples.is_empty() {
            let examples = verdict.examples.iter().map(|example| format!("<li>{}", Escaped(example)));
            write!(html, "<ul>{}</ul>", examples.collect::<String>())?;
        }
        writeln!(html, "</tr>")?;
    }
    writeln!(html, "</table>")
}

fn write_alerts(html: &mut String, alerts: &[Alert]) -> fmt::Result {
    writeln!(html, "<h1>Alerts</h1>")?;
    if alerts.is_empty() {
        return writeln!(html, "<p>None so far.</p>");
    }
    writeln!(html, "<table>\n<tr><th>Status<th>Alert<th>Severity<th>Since<th>Until<th>What is the matter</tr>")?;
    for alert in alerts {
        let class = if alert.status == Status::Firing { "bad" } else { "good" };
        let of = |key: &str| alert.annotations.get(key).or_else(|| alert.labels.get(key)).map_or("", String::as_str);
        writeln!(
            html,
            r#"<tr><td class="{class}">{}<td>{}<td>{}<td>{}<td>{}<td>{}<br><span class="quiet">{}</span></tr>"#,
            alert.status.as_str(),
            Escaped(&alert.name),
            Escaped(of("severity")),
            told(Some(alert.starts_at)),
            told(alert.ends_at),
            Escaped(of("summary")),
            Escaped(of("runbook_url")),
        )?;
    }
    writeln!(html, "</table>")
}

fn told(at: Option<OffsetDateTime>) -> String {
    let whole = at.and_then(|at| at.replace_nanosecond(0).ok());
    whole.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Text as HTML shows it, never as markup.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::{Verdict, Violations};

    fn audit(board: &Board, now: OffsetDateTime) -> String {
        let mut html = String::new();
        write_audit(&mut html, &board.read(), now).expect("a string takes everything");
        html
    }

    #[test]
    fn violations_are_shown_with_their_examples_and_never_as_markup() {
        let found: Violations = ["<b>lost & found</b>".to_owned()].into_iter().collect();
        let board = Board::default();
        board.audited(vec![Verdict::new("stock_conserved", "All adds up.", found)], Duration::from_millis(7));
        board.failed("no database".to_owned());
        let html = audit(&board, board::now());
        assert!(html.contains(r#"stock_conserved<td class="bad">1"#), "{html}");
        assert!(html.contains("&lt;b&gt;lost &amp; found&lt;/b&gt;") && !html.contains("<b>"), "{html}");
        assert!(html.contains("took 7 ms") && html.contains("cannot be audited now: no database"), "{html}");
    }

    #[test]
    fn a_verdict_that_is_not_current_is_never_green() {
        let board = Board::default();
        assert!(audit(&board, board::now()).contains("Nothing has been audited yet"));
        board.audited(vec![Verdict::new("stock_conserved", "All adds up.", Violations::default())], Duration::ZERO);
        let green = r#"<td class="good">0"#;
        let html = audit(&board, board::now());
        assert!(html.contains(green) && !html.contains("Not current"), "{html}");
        let later = audit(&board, board::now() + MAX_AGE);
        assert!(!later.contains(green) && later.contains("Not current"), "{later}");
        board.failed("no database".to_owned());
        let html = audit(&board, board::now());
        assert!(!html.contains(green) && html.contains("Not current"), "{html}");
    }
}
