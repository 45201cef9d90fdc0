//! The runbook, docs/runbook.md, as a page: alerts and dashboards link to its sections, `/runbook#SagaFailed`.

use std::sync::LazyLock;

use axum::{extract::State, http::HeaderMap};
use maud::PreEscaped;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, html::push_html};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::desk::{Desk, HtmlPage, page};

static RUNBOOK: LazyLock<String> = LazyLock::new(|| {
    let mut html = String::new();
    push_html(&mut html, with_anchors(include_str!("../../../../docs/runbook.md")).into_iter());
    html
});

pub(super) fn routes(desk: Desk) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(runbook)).with_state(desk)
}

/// What each alert means and what to do; the anchors are the alerts' names.
#[utoipa::path(get, path = "/runbook", tag = "audit", operation_id = "runbook",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn runbook(State(desk): State<Desk>, headers: HeaderMap) -> HtmlPage {
    page("Runbook", desk.session_seen(&headers).as_ref(), false, &PreEscaped(RUNBOOK.clone()))
}

/// Headings get two anchors: in lower case for the document's own links, and as written for the alerts' names.
fn with_anchors(markdown: &str) -> Vec<Event<'_>> {
    let events: Vec<_> = Parser::new_ext(markdown, Options::ENABLE_TABLES).collect();
    let text_behind = |at: usize| {
        let texts = events[at + 1..].iter().map_while(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(&**text),
            _ => None,
        });
        texts.collect::<String>().replace(' ', "-")
    };
    let anchored = events.iter().enumerate().flat_map(|(at, event)| match event {
        Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
            let name = text_behind(at);
            let id = Some(CowStr::from(name.to_lowercase()));
            let heading = Tag::Heading { level: *level, id, classes: classes.clone(), attrs: attrs.clone() };
            vec![Event::InlineHtml(format!("<a id=\"{name}\"></a>\n").into()), Event::Start(heading)]
        }
        other => vec![other.clone()],
    });
    anchored.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_anchors_for_alerts_and_for_the_document() {
        assert!(RUNBOOK.contains("<a id=\"SagaFailed\"></a>\n<h3 id=\"sagafailed\">SagaFailed</h3>"), "{}", *RUNBOOK);
        assert!(RUNBOOK.contains("<a href=\"#compensationfailed\">") && RUNBOOK.contains("<table>"), "{}", *RUNBOOK);
        assert!(RUNBOOK.contains("<h2 id=\"how-soon-they-fire\">"), "{}", *RUNBOOK);
    }
}
