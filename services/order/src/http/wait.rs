//! `Prefer: wait=N`: the answer may come when the saga has ended.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bootstrap::Problem;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{App, store};

pub(super) static PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

const LONGEST: u64 = 30;
/// How often the order is looked at: often at first, when most sagas end.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const RAREST_LOOK: Duration = Duration::from_millis(200);

/// How long a client is willing to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    seconds: u64,
}

impl Patience {
    pub(super) fn applied(self) -> HeaderValue {
        let text = format!("wait={}", self.seconds);
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("wait"))
    }
}

/// The wait that the request prefers, cut off at 30 s. A preference that cannot be read is ignored, as RFC 7240 says.
pub(super) fn asked_for(headers: &HeaderMap) -> Option<Patience> {
    let preferences = headers.get_all("prefer").iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let wait = preferences.filter_map(|p| p.trim().strip_prefix("wait=")).next()?;
    let seconds: u64 = wait.trim().parse().ok()?;
    Some(Patience { seconds: seconds.min(LONGEST) })
}

/// Waits until the order's saga has ended, the patience is over, or the service is about to stop.
pub(super) async fn until_ended(app: &App, order_id: Uuid, patience: Patience) -> Result<(), Problem> {
    let until = Instant::now() + Duration::from_secs(patience.seconds);
    let mut pause = FIRST_LOOK;
    while Instant::now() < until {
        let ended = store::has_ended(&mut *app.participant.pools.http.acquire().await?, order_id).await?;
        if ended {
            return Ok(());
        }
        let next = (Instant::now() + pause).min(until);
        if app.draining.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            return Ok(());
        }
        pause = (pause * 3 / 2).min(RAREST_LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferring(value: &'static str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", HeaderValue::from_static(value));
        asked_for(&headers).map(|p| p.seconds)
    }

    #[test]
    fn a_wait_is_found_among_other_preferences_and_cut_off() {
        assert_eq!(preferring("respond-async, wait=5"), Some(5));
        assert_eq!(preferring("wait=3600"), Some(LONGEST));
        assert_eq!(preferring("wait=soon"), None);
        assert_eq!(preferring("return=minimal"), None);
    }
}
