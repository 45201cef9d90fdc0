//! `Prefer: wait=N`: the answer waits until the saga has ended, at most N seconds.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bootstrap::Problem;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{App, store};

pub(super) static PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(super) const MAX_WAIT_SECONDS: u64 = 30;
/// The first and the longest interval between two polls of the order: short at first, when most sagas end.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// The value of `Preference-Applied`.
pub(super) fn applied(seconds: u64) -> HeaderValue {
    HeaderValue::try_from(format!("wait={seconds}")).unwrap_or(HeaderValue::from_static("wait"))
}

/// The seconds that the request prefers to wait, at most 30. An invalid preference is ignored, and of several waits the first
/// one counts (RFC 7240).
pub(super) fn preferred(headers: &HeaderMap) -> Option<u64> {
    let preferences = headers.get_all("prefer").iter().filter_map(|v| v.to_str().ok()).flat_map(|v| parts(v, ','));
    let wait = preferences.filter_map(wait_of).next()?;
    let seconds: u64 = wait.parse().ok()?;
    Some(seconds.min(MAX_WAIT_SECONDS))
}

/// `3` of `Wait = "3"; parameter`.
fn wait_of(preference: &str) -> Option<&str> {
    let (name, value) = parts(preference, ';').next()?.split_once('=')?;
    let value = value.trim();
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    name.trim().eq_ignore_ascii_case("wait").then_some(unquoted.unwrap_or(value))
}

/// The parts of a list; separators within quotation marks do not count.
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        let literal = escaped;
        escaped = quoted && c == '\\' && !literal;
        quoted ^= c == '"' && !literal;
        c == separator && !quoted
    })
}

/// Waits until the order's saga has ended, the wait is over, or the service drains.
pub(super) async fn until_ended(app: &App, order_id: Uuid, seconds: u64) -> Result<(), Problem> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut pause = FIRST_POLL;
    while Instant::now() < until {
        let ended = store::has_ended(&mut *app.participant.pools.http.acquire().await?, order_id).await?;
        if ended {
            return Ok(());
        }
        let next = (Instant::now() + pause).min(until);
        if app.draining.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            return Ok(());
        }
        pause = (pause * 3 / 2).min(LONGEST_POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferring(value: &'static str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", HeaderValue::from_static(value));
        preferred(&headers)
    }

    #[test]
    fn a_wait_is_found_among_other_preferences_and_cut_off() {
        assert_eq!(preferring("respond-async, wait=5"), Some(5));
        assert_eq!(preferring("wait=3600"), Some(MAX_WAIT_SECONDS));
        assert_eq!(preferring("wait=soon"), None);
        assert_eq!(preferring("return=minimal"), None);
    }

    #[test]
    fn a_wait_is_parsed_as_rfc_7240_says() {
        for three in
            ["Wait=3", "WAIT=3", "wait=\"3\"", "wait = 3", "wait=3; strict", "wait=3;a=\",\", x", "x=\"a, b\", wait=3"]
        {
            assert_eq!(preferring(three), Some(3), "{three}");
        }
        assert_eq!(preferring("wait=3, wait=5"), Some(3), "the first one counts");
        for none in
            ["x=\"wait=3\"", "x=\"\\\", wait=3\"", "await=3", "wait", "wait=", "wait=\"3", "wait=-1", "wait=3.5"]
        {
            assert_eq!(preferring(none), None, "{none}");
        }
    }
}
