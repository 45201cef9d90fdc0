//! Authorisation: every route of every service's OpenAPI document, with no token, wrong tokens and the right one. The routes come
//! from the documents, so none can be forgotten here.

use reqwest::{StatusCode, header};
use suite_tests::Operation;

use crate::prelude::*;

const RIGHT: &str = "Bearer dev-admin-token";
/// Nearly correct tokens, and unknown schemes; `false` where no token is given at all.
const WRONG: [(&str, bool); 8] = [
    ("Bearer wrong", true),
    ("Bearer dev-admin-toke", true),
    ("Bearer dev-admin-token2", true),
    ("Bearer DEV-ADMIN-TOKEN", true),
    ("Bearer dev-admin-token, Bearer dev-admin-token", true),
    ("Basic ZGV2LWFkbWluLXRva2Vu", false),
    ("dev-admin-token", false),
    ("Bearer ", false),
];

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn every_route_requires_the_token_its_document_names() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants_with_faults().await?;
    for replica in participants.all() {
        let routes = replica.operations()?;
        for Operation { method, path, guarded, .. } in &routes {
            let right = *guarded == (path.starts_with("/api/admin") || path.starts_with("/api/saga/"));
            ensure!(right, "{method} {path}: the document is wrong about its guard");
        }
        let guarded = routes.iter().filter(|route| route.guarded).count();
        ensure!(guarded >= 20 && guarded < routes.len(), "{}: {guarded} of {}", replica.service, routes.len());
        // No refused request has paused, discarded or disarmed anything; requests with the token come last.
        let before = state_of(replica).await?;
        for route in &routes {
            keeps_out(replica, route).await?;
        }
        ensure!(state_of(replica).await? == before, "{}: a refused request had an effect", replica.service);
        for route in &routes {
            let (status, _) = ask(replica, &route.method, &route.filled(), Some(RIGHT)).await?;
            ensure!(lets_in(status), "{} {} answers {status} to the token", route.method, route.path);
        }
    }
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn no_spelling_and_no_method_bypasses_the_admin_token() -> Test {
    let (_suite, payment) = TestSuite::alone(PAYMENT).await?;
    for path in ["/api/admin", "/api/admin/", "/api/admin/relay", "/api/admin/relay/", "/api/admin/unknown"] {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            ensure!(ask(&payment, &method.parse()?, path, None).await?.0 == 401, "{method} {path}");
        }
    }
    let detours =
        ["//api/admin/relay", "/api//admin/relay", "/api/%61dmin/relay", "/API/ADMIN/relay", "/api/admin;/relay"];
    for path in detours.into_iter().chain(["/api/admin%2Frelay", "/api/x/..%2fadmin/relay", "/api/admin\\relay"]) {
        let status = ask(&payment, &Method::GET, path, None).await?.0;
        ensure!(status.is_client_error(), "{path}: {status}");
    }
    Ok(())
}

/// The error may concern the request, but neither the token nor the service.
fn lets_in(status: StatusCode) -> bool {
    !matches!(status.as_u16(), 401 | 403) && !status.is_server_error()
}

/// Without the token a guarded route stays closed, and the others need none.
async fn keeps_out(replica: &Replica, route: &Operation) -> Test {
    let (method, path) = (&route.method, &route.filled());
    let (status, headers) = ask(replica, method, path, None).await?;
    if !route.guarded {
        ensure!(lets_in(status), "{method} {path} answers {status} to the public");
        return Ok(());
    }
    ensure!(status == 401, "{method} {path} without a token: {status}");
    ensure!(headers.get(header::WWW_AUTHENTICATE).is_some_and(|scheme| scheme == "Bearer"), "{method} {path}");
    for (authorization, is_token) in WRONG {
        let (status, headers) = ask(replica, method, path, Some(authorization)).await?;
        let wanted = if is_token { 403 } else { 401 };
        ensure!(status == wanted, "{method} {path} with {authorization:?}: {status}");
        ensure!(headers[header::CONTENT_TYPE] == "application/problem+json", "{method} {path}");
    }
    Ok(())
}

async fn ask(
    replica: &Replica,
    method: &Method,
    path: &str,
    authorization: Option<&str>,
) -> anyhow::Result<(StatusCode, header::HeaderMap)> {
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let mut request = http.request(method.clone(), format!("{}{path}", replica.url));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let answer = request.send().await?;
    Ok((answer.status(), answer.headers().clone()))
}

/// What the guarded routes can change.
async fn state_of(replica: &Replica) -> anyhow::Result<Vec<Value>> {
    let mut state = Vec::new();
    for (path, pointer) in
        [("relay", "/paused"), ("consumers", "/items"), ("faults", "/items"), ("dlq/replays", "/items")]
    {
        let body = replica.client.get(&format!("/api/admin/{path}")).await?.expect(200)?;
        let value = body.pointer(pointer).with_context(|| format!("{path} has no {pointer}: {body:#}"))?;
        state.push(match value.as_array() {
            // Of the consumers only the pauses: the rest changes all the time.
            Some(items) => items.iter().map(|item| item["paused"].clone()).collect(),
            None => value.clone(),
        });
    }
    Ok(state)
}
