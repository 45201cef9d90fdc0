//! What all pages have in common: head, navigation and style. They load nothing from elsewhere.

use axum::{
    http::header,
    response::{Html, IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{manage, session::Session};

/// With the console's one script, and the one style that is in the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";
/// How often a live page reloads itself where there are no scripts, in seconds.
const RELOAD: u32 = 5;

/// Who is logged in, and how to change that.
fn who(session: Option<&Session>) -> Markup {
    html! {
        @match session {
            None => a.who href="/login" { "Log in" },
            Some(session) => form.who method="post" action="/logout" {
                input type="hidden" name="csrf" value=(session.csrf);
                (session.who.actor) " " button { "Log out" }
            },
        }
    }
}

const STYLE: &str = include_str!("style.css");

/// A page, and the policy that keeps it from loading or running anything.
pub(crate) struct HtmlPage(Markup);

impl IntoResponse for HtmlPage {
    fn into_response(self) -> Response {
        ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(self.0.into_string())).into_response()
    }
}

/// A page with this title, for the session of its reader; a live one is kept current while it is open.
pub(crate) fn page(title: &str, session: Option<&Session>, live: bool, main: &Markup) -> HtmlPage {
    HtmlPage(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if live { noscript { meta http-equiv="refresh" content=(RELOAD); } }
                title { (title) " · Pas de Trois" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "To the content" }
                header {
                    nav aria-label="Pages" {
                        a.brand href="/" { "Pas de Trois" }
                        a href="/" { "Overview" }
                        a href="/orders" { "Orders" }
                        @for (path, title) in manage::links() { a href={ "/manage/" (path) } { (title) } }
                        a href="/actions" { "Actions" }
                        a href="/runs" { "Runs" }
                        a href="/runbook" { "Runbook" }
                        a href="/docs" { "API" }
                        (who(session))
                    }
                }
                main id="main" data-live[live] { (main) }
                script src="/live.js" {}
            }
        }
    })
}
