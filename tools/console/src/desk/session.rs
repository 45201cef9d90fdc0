//! Who is logged in. A session is kept in memory only, and ends with the console. Without one, pages can be read and nothing done.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Form,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use bootstrap::Problem;
use maud::{Markup, html};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Desk, HtmlPage, page};
use crate::{
    operations::{Role, Who},
    secret,
};

const COOKIE: &str = "desk";
/// A session that is not used for so long has ended.
const IDLE: Duration = Duration::from_secs(3600);
/// How many there are at most; then the one that was used longest ago ends.
const MAX_SESSIONS: usize = 1_000;

/// Clones share it.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<String, Session>>>);

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) who: Who,
    /// Each form carries it: a page of another site cannot know it.
    pub(super) csrf: String,
    used: Instant,
}

impl Session {
    pub(super) fn may_act(&self) -> bool {
        self.who.role >= Role::Operator
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

impl Sessions {
    /// The session of a request, by its cookie.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        self.seen(headers).inspect(|session| {
            let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.values_mut().filter(|one| one.csrf == session.csrf).for_each(|one| one.used = Instant::now());
        })
    }

    /// The same for a page that reloads itself, which is no use of the session.
    pub(super) fn seen(&self, headers: &HeaderMap) -> Option<Session> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| session.used.elapsed() < IDLE);
        sessions.get(cookie(headers)?).cloned()
    }

    /// Begins a session, and returns its key.
    fn begin(&self, who: Who) -> String {
        let key = secret();
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(key.clone(), Session { who, csrf: secret(), used: Instant::now() });
        key
    }

    fn end(&self, headers: &HeaderMap) {
        if let Some(key) = cookie(headers) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
    }

    /// The session of a form that was sent.
    ///
    /// # Errors
    /// 401 without a session, 403 when the form is not one of the session's pages.
    pub(super) fn of_form(&self, headers: &HeaderMap, csrf: Option<&str>) -> Result<Session, Problem> {
        let session = self.of(headers).ok_or_else(|| Problem::unauthorized("Log in first."))?;
        if csrf != Some(session.csrf.as_str()) || is_foreign(headers) {
            return Err(Problem::forbidden("This form is not one of your session's pages. Load the page again."));
        }
        Ok(session)
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|cookies| cookies.split(';')).find_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Whether a browser says that the form is another site's.
fn is_foreign(headers: &HeaderMap) -> bool {
    let of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = of(header::ORIGIN) else { return false };
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    Some(host) != of(header::HOST)
}

#[derive(Deserialize, ToSchema)]
pub(super) struct Login {
    /// Recorded with each action.
    name: String,
    /// The admin token of the services, or the operator's or viewer's of the console.
    token: String,
}

/// The form to log in.
#[utoipa::path(get, path = "/login", tag = "desk", operation_id = "login_page",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
pub(super) async fn form() -> HtmlPage {
    page("Log in", None, false, &login_form(None))
}

fn login_form(failure: Option<&str>) -> Markup {
    html! {
        h1 { "Log in" }
        p { "Pages can be read without. Who acts is recorded." }
        @if let Some(failure) = failure { p.bad role="alert" { (failure) } }
        form.search method="post" action="/login" {
            label { "Your name" input name="name" required maxlength="100" autocomplete="username" autofocus; }
            label { "Token" input name="token" type="password" required autocomplete="current-password"; }
            button { "Log in" }
        }
    }
}

/// Begins a session.
#[utoipa::path(post, path = "/login", tag = "desk", operation_id = "login",
    request_body(content = Login, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303, description = "Logged in"), (status = 403, description = "A wrong token", body = String, content_type = "text/html")))]
pub(super) async fn login(State(desk): State<Desk>, headers: HeaderMap, Form(login): Form<Login>) -> Response {
    let name = login.name.trim();
    let is_name = Who::new(name, Role::Viewer).is_some();
    let failure = if is_foreign(&headers) {
        Some("This form is not one of this console's pages.")
    } else if !is_name {
        Some("A name has 1 to 100 printable ASCII characters.")
    } else {
        None
    };
    let role = desk.tokens.role(login.token.trim());
    if failure.is_none() && role.is_none() {
        tracing::warn!(name, "a login with a wrong token");
    }
    let refused = "The token is not one that the console was started with.";
    let (None, Some(role)) = (failure, role) else {
        let form = login_form(Some(failure.unwrap_or(refused)));
        return (StatusCode::FORBIDDEN, page("Log in", None, false, &form)).into_response();
    };
    let key = desk.sessions.begin(Who { actor: name.to_owned(), role });
    let cookie = format!("{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

#[derive(Deserialize, ToSchema)]
pub(super) struct Logout {
    csrf: String,
}

/// Ends the session.
#[utoipa::path(post, path = "/logout", tag = "desk", operation_id = "logout",
    request_body(content = Logout, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303, description = "Logged out")))]
pub(super) async fn logout(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Form(logout): Form<Logout>,
) -> Result<Redirect, Problem> {
    desk.sessions.of_form(&headers, Some(&logout.csrf))?;
    desk.sessions.end(&headers);
    Ok(Redirect::to("/"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value"))).collect()
    }

    #[test]
    fn a_form_needs_its_session_its_token_and_its_own_site() {
        let sessions = Sessions::default();
        let key = sessions.begin(Who { actor: "ann".to_owned(), role: Role::Admin });
        let cookie = format!("other=1; {COOKIE}={key}");
        let own = headers(&[(header::COOKIE, &cookie), (header::HOST, "a:1"), (header::ORIGIN, "http://a:1")]);
        let csrf = sessions.of(&own).expect("a session").csrf;
        assert_eq!(sessions.of_form(&own, Some(&csrf)).expect("allowed").who.actor, "ann");
        assert!(sessions.of_form(&own, None).is_err() && sessions.of_form(&own, Some(&key)).is_err());
        let foreign = headers(&[(header::COOKIE, &cookie), (header::HOST, "a:1"), (header::ORIGIN, "http://b:1")]);
        assert!(sessions.of_form(&foreign, Some(&csrf)).is_err());
        assert!(sessions.of(&headers(&[(header::COOKIE, "desk=guess")])).is_none());
        sessions.end(&own);
        assert!(sessions.of(&own).is_none());
    }
}
