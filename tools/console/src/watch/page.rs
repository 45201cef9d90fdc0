//! The page with the latest audit and the alerts. It reloads itself and loads nothing else.

use std::fmt::{self, Display, Write as _};

use axum::{extract::State, response::Html};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    alerts::{Alert, AlertBook, Status},
    board::{self, Board, Known},
};
use crate::audit::Verdict;

const STYLE: &str = "
:root { color-scheme: light dark }
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 75rem;
    color: light-dark(#1f2328, #d5dbe3); background: light-dark(#fff, #0d1117) }
table { border-collapse: collapse; margin-bottom: 2rem }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid light-dark(#ddd, #30363d) }
a { color: light-dark(#0969da, #6cb6ff) }
pre { padding: .7rem; overflow-x: auto; background: light-dark(#f3f4f6, #161b22) }
.verdict { font-size: 1.6rem; margin: .5rem 0 }
.good { color: light-dark(#0a6b2d, #73bf69) } .bad { color: light-dark(#b3001b, #ff7b87); font-weight: bold }
.quiet { color: light-dark(#59636e, #9198a1) }
ul { margin: 0; padding-left: 1rem }
";

pub(super) const TAIL: &str = "</body>\n</html>\n";

/// The beginning of every page; `more` goes into its head.
pub(super) fn head(title: &str, more: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n{more}\
         <style>{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// Older verdicts are not current.
const MAX_AGE: time::Duration = time::Duration::minutes(1);

#[derive(Clone)]
struct Shown {
    board: Board,
    alerts: AlertBook,
}

pub(super) fn routes(board: Board, alerts: AlertBook) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(page)).with_state(Shown { board, alerts })
}

/// The latest audit and the latest alerts, as a page.
#[utoipa::path(get, path = "/", tag = "audit", operation_id = "page",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn page(State(shown): State<Shown>) -> Html<String> {
    let mut html = head("Audit and alerts", "<meta http-equiv=\"refresh\" content=\"5\">\n");
    let alerts = shown.alerts.latest();
    // Writing to a string does not fail.
    let (known, now) = (shown.board.read(), board::now());
    let _ = write_audit(&mut html, &known, &alerts, now);
    let _ = write_alerts(&mut html, &alerts);
    let _ = write_sound(&mut html, &known, now);
    html.push_str(TAIL);
    Html(html)
}

/// The overall verdict in one sentence.
fn write_verdict(html: &mut String, known: &Known, alerts: &[Alert], age: Option<time::Duration>) -> fmt::Result {
    let violated = known.verdicts.values().filter(|verdict| verdict.violations > 0).count();
    let firing = alerts.iter().filter(|alert| alert.status == Status::Firing).count();
    let (class, sentence) = match (age, violated, firing) {
        (None, ..) => ("quiet", "Nothing has been audited yet.".to_owned()),
        (_, 1.., _) => ("bad", format!("{violated} of {} invariants violated.", known.verdicts.len())),
        _ if !is_current(known, age) => ("bad", "Unknown: the suite is not being audited.".to_owned()),
        (_, 0, 0) => ("good", format!("All is well: {} invariants hold, no alert fires.", known.verdicts.len())),
        (_, 0, _) => ("bad", format!("All {} invariants hold; alerts that fire: {firing}.", known.verdicts.len())),
    };
    writeln!(html, r#"<p class="verdict {class}">{sentence}</p>"#)?;
    writeln!(
        html,
        r#"<p><a href="/runbook">Runbook</a> · <a href="/alerts">Alerts as JSON</a> · <a href="/docs">API</a></p>"#
    )
}

fn is_current(known: &Known, age: Option<time::Duration>) -> bool {
    known.failure.is_none() && age.is_some_and(|age| age < MAX_AGE)
}

fn write_audit(html: &mut String, known: &Known, alerts: &[Alert], now: OffsetDateTime) -> fmt::Result {
    let age = known.audited_at.map(|at| now - at);
    write_verdict(html, known, alerts, age)?;
    if let Some(reason) = &known.failure {
        writeln!(html, r#"<p class="bad">The suite cannot be audited now: {}</p>"#, Escaped(reason))?;
    }
    let Some(age) = age else { return Ok(()) };
    let current = is_current(known, Some(age));
    let (class, stale) = if current { ("quiet", "The") } else { ("bad", "Not current: the") };
    write!(html, r#"<p class="{class}">{stale} latest audit ended {} s ago and "#, age.whole_seconds())?;
    writeln!(html, "took {} ms.</p>", known.took.as_millis())?;
    let violated: Vec<_> = known.verdicts.values().filter(|verdict| verdict.violations > 0).collect();
    if violated.is_empty() { Ok(()) } else { write_invariants(html, &violated, "bad") }
}

/// The invariants without violations, at the end of the page.
fn write_sound(html: &mut String, known: &Known, now: OffsetDateTime) -> fmt::Result {
    let sound: Vec<_> = known.verdicts.values().filter(|verdict| verdict.violations == 0).collect();
    let current = is_current(known, known.audited_at.map(|at| now - at));
    writeln!(html, "<h2>Invariants that {}</h2>", if current { "hold" } else { "held when they were last checked" })?;
    write_invariants(html, &sound, if current { "good" } else { "quiet" })
}

fn write_invariants(html: &mut String, verdicts: &[&Verdict], class: &str) -> fmt::Result {
    writeln!(html, "<table>\n<tr><th>Invariant<th>Violations<th>Left out<th>Meaning</tr>")?;
    for verdict in verdicts {
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
    writeln!(html, "<h2>Alerts</h2>")?;
    if alerts.is_empty() {
        return writeln!(html, "<p>None so far.</p>");
    }
    writeln!(html, "<table>\n<tr><th>Status<th>Alert<th>Severity<th>Since<th>Until<th>Summary</tr>")?;
    for alert in alerts {
        let class = if alert.status == Status::Firing { "bad" } else { "good" };
        let of = |key: &str| alert.annotations.get(key).or_else(|| alert.labels.get(key)).map_or("", String::as_str);
        writeln!(
            html,
            r##"<tr><td class="{class}">{}<td><a href="/runbook#{name}">{name}</a><td>{}<td>{}<td>{}<td>{}</tr>"##,
            alert.status.as_str(),
            Escaped(of("severity")),
            rfc3339(Some(alert.starts_at)),
            rfc3339(alert.ends_at),
            Escaped(of("summary")),
            name = Escaped(&alert.name),
        )?;
    }
    writeln!(html, "</table>")
}

fn rfc3339(at: Option<OffsetDateTime>) -> String {
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
    use crate::audit::Violations;

    fn audit(board: &Board, now: OffsetDateTime) -> String {
        let mut html = String::new();
        write_audit(&mut html, &board.read(), &[], now).expect("writing to a string");
        write_sound(&mut html, &board.read(), now).expect("writing to a string");
        html
    }

    #[test]
    fn violations_are_shown_with_escaped_examples() {
        let found: Violations = ["<b>lost & found</b>".to_owned()].into_iter().collect();
        let board = Board::default();
        board.audited(vec![Verdict::new("stock_conserved", "All adds up.", found)], Duration::from_millis(7));
        board.failed("no database".to_owned());
        let html = audit(&board, board::now());
        assert!(html.contains(r#"stock_conserved<td class="bad">1"#), "{html}");
        assert!(html.contains("&lt;b&gt;lost &amp; found&lt;/b&gt;") && !html.contains("<b>"), "{html}");
        assert!(html.contains("1 of 1 invariants violated."), "{html}");
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
        assert!(html.contains("All is well: 1 invariants hold"), "{html}");
        let later = audit(&board, board::now() + MAX_AGE);
        assert!(!later.contains(green) && later.contains("Not current") && later.contains("Unknown"), "{later}");
        board.failed("no database".to_owned());
        let html = audit(&board, board::now());
        assert!(!html.contains(green) && html.contains("Not current"), "{html}");
    }
}
