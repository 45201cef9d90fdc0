//! What operators did, latest first: by script, page or agent.

use axum::{extract::State, http::HeaderMap};
use bootstrap::Problem;
use maud::{Markup, html};

use super::{
    Desk, HtmlPage,
    journey::moment,
    page,
    store::{self, Action},
    unreadable,
};

/// The latest actions.
#[utoipa::path(get, path = "/actions", tag = "desk", operation_id = "actions_page",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
pub(super) async fn list(State(desk): State<Desk>, headers: HeaderMap) -> Result<HtmlPage, Problem> {
    let actions = store::actions(&desk.pool).await.map_err(|error| unreadable(&error))?;
    Ok(page("Actions", desk.sessions.of(&headers).as_ref(), false, &shown(&actions)))
}

fn shown(actions: &[Action]) -> Markup {
    html! {
        h1 { "What operators did" }
        p.quiet { "The latest " (store::ACTIONS) " requests to the services' administration." }
        @if actions.is_empty() {
            p { "Nothing." }
        } @else {
            table {
                thead { tr { th { "At" } th { "Who" } th { "Service" } th { "What" } th { "Why" } th { "Answer" } } }
                tbody { @for action in actions { (row(action)) } }
            }
        }
    }
}

fn row(action: &Action) -> Markup {
    let class = if action.status.is_some_and(|status| status < 400) { "good" } else { "bad" };
    html! {
        tr {
            td data-name="At" { (moment(action.acted_at)) }
            td data-name="Who" { (action.actor) }
            td data-name="Service" { (action.service) }
            td data-name="What" { code { (action.action) } }
            td data-name="Why" { (action.reason.as_deref().unwrap_or("")) }
            td data-name="Answer" class=(class) {
                @match action.status { Some(status) => (status), None => "none" }
            }
        }
    }
}
