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
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepted != Some("text/event-stream") {
        return Ok(page(title, session, true, &render().await?).into_response());
    }
    let turn = desk.open_pages.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Problem::unavailable("Too many pages are open.", 30))?;
    let changes = stream::unfold((render, String::new(), turn), |(render, shown, turn)| async move {
        loop {
            tokio::time::sleep(EVERY).await;
            // What cannot be read now stays as it is.
            let Ok(now) = render().await else { continue };
            // No event holds a carriage return.
            let now = now.into_string().replace('\r', "");
            if now != shown {
                let event = Ok::<_, std::convert::Infallible>(Event::default().event("main").data(&now));
                return Some((event, (render, now, turn)));
            }
        }
    });
    let changes = changes.take_until(desk.stop.clone().cancelled_owned());
    Ok(Sse::new(changes).keep_alive(KeepAlive::default()).into_response())
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
