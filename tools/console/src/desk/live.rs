//! Pages that stay current while they are open: the same URL, asked for as `text/event-stream`, sends the page's content again
//! whenever it has changed.

use std::time::Duration;

use axum::{
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use bootstrap::Problem;
use futures_util::{StreamExt as _, stream};
use maud::Markup;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Desk, page, session::Session};

/// How often an open page is looked at again.
const EVERY: Duration = Duration::from_secs(2);
/// How many pages are open at most; each is read again every [`EVERY`].
pub(super) const MAX_OPEN: usize = 50;

/// The page that `render` makes, or its changes.
pub(crate) async fn live<Rendered>(
    desk: &Desk,
    headers: &HeaderMap,
    title: &str,
    session: Option<&Session>,
    render: impl Fn() -> Rendered + Send + 'static,
) -> Result<Response, Problem>
where
    Rendered: Future<Output = Result<Markup, Problem>> + Send,
{
    if !is_stream(headers) {
        return Ok(page(title, session, true, &render().await?).into_response());
    }
    let turn = desk.open_pages.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Problem::unavailable("Too many pages are open.", 30))?;
    // It shows what the session may see, so it ends with it.
    let (owner, was_owned, headers) = (desk.clone(), session.is_some(), headers.clone());
    let has_ended = move || was_owned && owner.session_seen(&headers).is_none();
    let first = (render, has_ended, String::new(), turn);
    let changes = stream::unfold(first, |(render, has_ended, shown, turn)| async move {
        loop {
            tokio::time::sleep(EVERY).await;
            if has_ended() {
                return None;
            }
            let (event, now) = match render().await {
                // No event holds a carriage return.
                Ok(now) => ("main", now.into_string().replace('\r', "")),
                Err(_) => ("stale", "it cannot be read now".to_owned()),
            };
            if now != shown {
                let event = Event::default().event(event).data(&now);
                return Some((Ok::<_, std::convert::Infallible>(event), (render, has_ended, now, turn)));
            }
        }
    });
    let changes = changes.take_until(desk.stop.clone().cancelled_owned());
    Ok(Sse::new(changes).keep_alive(KeepAlive::default()).into_response())
}

/// Whether a page's changes are asked for.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream")
}

pub(super) fn routes() -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(script))
}

/// The script of all pages.
#[utoipa::path(get, path = "/live.js", tag = "desk", operation_id = "script",
    responses((status = 200, description = "The script", body = String, content_type = "text/javascript")))]
async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("live.js")).into_response()
}
