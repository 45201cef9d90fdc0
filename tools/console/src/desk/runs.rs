//! Runs: a page with forms to begin one, and a page for each, where it is watched, answered and stopped.

use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use bootstrap::Problem;
use maud::{Markup, html};

use super::{Desk, HtmlPage, journey::moment, live, page, session::Session};
use crate::{
    operations::{Arguments, Refusal, Role},
    runs::{self, Kind, Run, Runs},
};

/// The latest runs, and the forms to begin one.
#[utoipa::path(get, path = "/runs", tag = "desk", operation_id = "runs_page",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
pub(super) async fn list(State(desk): State<Desk>, headers: HeaderMap) -> HtmlPage {
    let session = desk.sessions.of(&headers);
    page("Runs", session.as_ref(), false, &listed(&desk.runs, session.as_ref(), None))
}

/// Begins a run.
#[utoipa::path(post, path = "/runs", tag = "desk", operation_id = "begin_run",
    responses((status = 303, description = "It was begun: its page"),
        (status = 401, description = "Not logged in", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "Not a form of the session, or not for its role", body = String, content_type = "text/html"),
        (status = 422, description = "There is no such run, or another one runs", body = String, content_type = "text/html")))]
pub(super) async fn begin(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Form(mut form): Form<Arguments>,
) -> Result<Response, Problem> {
    let session = desk.sessions.of_form(&headers, form.remove("csrf").as_deref())?;
    let of = |name: &str| form.get(name).map_or("", String::as_str);
    let begun = desk.runs.begin(&session.who, of("kind"), Some(of("argument")), of("reason"));
    Ok(match begun {
        Ok(id) => Redirect::to(&format!("/runs/{id}")).into_response(),
        Err(refusal) => {
            let main = listed(&desk.runs, Some(&session), Some(&refusal));
            (status(&refusal), page("Runs", Some(&session), false, &main)).into_response()
        }
    })
}

/// One run, while it runs and after it.
#[utoipa::path(get, path = "/runs/{id}", tag = "desk", operation_id = "run_page",
    params(("id" = u64, Path, description = "The run's id")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let title = found(&desk.runs, id)?.title;
    let session = desk.session(&headers);
    let (of, runs) = (session.clone(), desk.runs.clone());
    let render = move || {
        let shown = found(&runs, id).map(|run| shown(&run, of.as_ref(), None));
        async move { shown }
    };
    live(&desk, &headers, &title, session.as_ref(), render).await
}

/// Sends a line to a run.
#[utoipa::path(post, path = "/runs/{id}/answer", tag = "desk", operation_id = "answer_run",
    params(("id" = u64, Path, description = "The run's id")),
    responses((status = 303, description = "It was sent: the run's page"),
        (status = 401, description = "Not logged in", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "Not a form of the session, or not for its role", body = String, content_type = "text/html"),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It has ended, or this is no line", body = String, content_type = "text/html")))]
pub(super) async fn answer(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    Form(mut form): Form<Arguments>,
) -> Result<Response, Problem> {
    let session = desk.sessions.of_form(&headers, form.remove("csrf").as_deref())?;
    let of = |name: &str| form.get(name).map_or("", String::as_str);
    acted(&desk, id, &session, desk.runs.answer(&session.who, id, of("text"), of("reason")))
}

/// Lets a run undo what it did, and end.
#[utoipa::path(post, path = "/runs/{id}/stop", tag = "desk", operation_id = "stop_run",
    params(("id" = u64, Path, description = "The run's id")),
    responses((status = 303, description = "It was asked to: the run's page"),
        (status = 401, description = "Not logged in", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "Not a form of the session, or not for its role", body = String, content_type = "text/html"),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It has ended", body = String, content_type = "text/html")))]
pub(super) async fn stop(
    State(desk): State<Desk>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    Form(mut form): Form<Arguments>,
) -> Result<Response, Problem> {
    let session = desk.sessions.of_form(&headers, form.remove("csrf").as_deref())?;
    let why = form.get("reason").map_or("", String::as_str);
    acted(&desk, id, &session, desk.runs.stop(&session.who, id, why))
}

fn acted(desk: &Desk, id: u64, session: &Session, outcome: Result<(), Refusal>) -> Result<Response, Problem> {
    let Err(refusal) = outcome else { return Ok(Redirect::to(&format!("/runs/{id}")).into_response()) };
    let run = found(&desk.runs, id)?;
    let main = shown(&run, Some(session), Some(&refusal));
    Ok((status(&refusal), page(&run.title, Some(session), false, &main)).into_response())
}

fn found(runs: &Runs, id: u64) -> Result<Run, Problem> {
    runs.find(id)
        .ok_or_else(|| Problem::not_found("There is no such run: the console keeps the latest, and none when it ends."))
}

fn status(refusal: &Refusal) -> StatusCode {
    if matches!(refusal, Refusal::Role(..)) { StatusCode::FORBIDDEN } else { StatusCode::UNPROCESSABLE_ENTITY }
}

fn listed(runs: &Runs, session: Option<&Session>, failure: Option<&Refusal>) -> Markup {
    let all = runs.list();
    html! {
        h1 { "Runs" }
        p { "Scenarios, audits and drills on this suite, one at a time. Each undoes what it did, also when it is stopped." }
        @if let Some(failure) = failure { p.bad role="alert" { (failure) } }
        @for run in all.iter().filter(|run| run.is_running()) { p.verdict { (state(run)) ": " a href={ "/runs/" (run.id) } { (run.title) } } }
        @match session {
            Some(session) if session.may_act() => (forms(runs, session)),
            _ => p { a href="/login" { "Log in" } " as an operator to begin one." },
        }
        h2 { "The latest" }
        @if all.is_empty() {
            p { "None since this console began." }
        } @else {
            table {
                thead { tr { th { "Run" } th { "State" } th { "Begun" } th { "Who" } th { "Why" } } }
                tbody { @for run in &all { (row(run)) } }
            }
        }
    }
}

fn row(run: &Run) -> Markup {
    html! {
        tr {
            td data-name="Run" { a href={ "/runs/" (run.id) } { (run.id) " " (run.title) } }
            td data-name="State" { (state(run)) }
            @if let Some(begun) = run.acts.first() {
                td data-name="Begun" { (moment(begun.at)) }
                td data-name="Who" { (begun.who) }
                td data-name="Why" { (begun.why) }
            }
        }
    }
}

fn forms(runs: &Runs, session: &Session) -> Markup {
    let is_admin = session.who.role >= Role::Admin;
    html! {
        @if is_admin {
            h2 { "A scenario" }
            (form("/runs", session, "Play", &html! {
                input type="hidden" name="kind" value="scenario";
                label {
                    "Scenario"
                    select name="argument" { @for (number, title) in runs.scenarios() { option value=(number) { (title) } } }
                }
            }))
            @if !runs.has_scripts() { p.quiet { "The other scenarios start and stop processes, which this console cannot." } }
        }
        h2 { "An audit that settles" }
        p { "It first waits, up to 30 s, until everything that is in flight has ended." }
        (form("/runs", session, "Audit", &html! { input type="hidden" name="kind" value="audit"; }))
        h2 { "A drill" }
        @if !runs.has_scripts() {
            p { (runs::NO_DRILL) }
        } @else if !is_admin {
            p { "Scenarios and drills break things: they are for admins." }
        } @else {
            p { "Something breaks. Find out what, and answer." }
            (form("/runs", session, "Begin the drill", &html! {
                input type="hidden" name="kind" value="drill";
                label { "Seed" input name="argument" inputmode="numeric" pattern="[0-9]*"; small { "The same seed breaks the same; without, chance decides." } }
            }))
        }
    }
}

/// A form that asks why.
fn form(action: &str, session: &Session, button: &str, fields: &Markup) -> Markup {
    html! {
        form.operation method="post" action=(action) {
            input type="hidden" name="csrf" value=(session.csrf);
            (fields)
            label { "Why" input name="reason" required maxlength="500" size="60"; }
            button { (button) }
        }
    }
}

fn state(run: &Run) -> Markup {
    let word = match run.state {
        runs::State::Running => return html! { span.wait { "running" } },
        runs::State::Ended => "ended",
        runs::State::Stopped => "stopped",
    };
    html! {
        @match run.exit_code {
            Some(0) => span.good { (word) ", exit code 0" },
            Some(code) => span.bad { (word) ", exit code " (code) },
            None => span.bad { (word) " without an exit code" },
        }
    }
}

fn shown(run: &Run, session: Option<&Session>, failure: Option<&Refusal>) -> Markup {
    let session = session.filter(|session| session.may_act() && run.is_running());
    let path = format!("/runs/{}", run.id);
    html! {
        h1 { (run.title) }
        p.verdict { (state(run)) }
        @if let Some(failure) = failure { p.bad role="alert" { (failure) } }
        h2 { "Output" }
        @if run.output.left_out > 0 { p.quiet { "Without the first " (run.output.left_out) " lines." } }
        pre { (run.output.text()) }
        @if let Some(session) = session {
            @if run.kind == Kind::Drill {
                (form(&format!("{path}/answer"), session, "Answer", &html! {
                    label { "Answer" input name="text" required maxlength="500" size="60" autocomplete="off"; }
                }))
            }
            details {
                summary { "Stop it" }
                p { "It undoes what it did, and ends." }
                (form(&format!("{path}/stop"), session, "Stop the run", &html! {}))
            }
        }
        h2 { "Who did what" }
        table {
            thead { tr { th { "At" } th { "Who" } th { "What" } th { "Why" } } }
            tbody {
                @for act in &run.acts {
                    tr {
                        td data-name="At" { (moment(act.at)) }
                        td data-name="Who" { (act.who) }
                        td data-name="What" { (act.what) }
                        td data-name="Why" { (act.why) }
                    }
                }
            }
        }
        p { a href="/runs" { "All runs" } }
    }
}
