//! The settings of the webhook, with defaults.

use std::{fmt, str::FromStr, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use saga::Retry;

/// Where published events are posted, and how.
#[derive(Debug, Clone, Args)]
pub struct WebhookArgs {
    /// Where this service's published events are posted; without it they are not. `http://` only: encryption is a proxy's.
    #[arg(long, env = "WEBHOOK_URL", requires = "webhook_secret", value_parser = plain_http)]
    pub webhook_url: Option<reqwest::Url>,
    /// The secret of the signatures: `whsec_` and 24 to 64 bytes in base64. Two, separated by a comma, while it is replaced: each
    /// request has a signature of each.
    #[arg(long, env = "WEBHOOK_SECRET", hide_env_values = true)]
    pub webhook_secret: Option<Secrets>,
    /// How long the endpoint may take to answer.
    #[arg(long, env = "WEBHOOK_TIMEOUT", default_value = "5s", value_parser = humantime::parse_duration)]
    pub webhook_timeout: Duration,
    /// How often an event may fail before it is parked.
    #[arg(long, env = "WEBHOOK_ATTEMPTS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub webhook_attempts: u32,
    /// The longest wait after an event's first failure; it doubles with each further one, up to five minutes.
    #[arg(long, env = "WEBHOOK_RETRY_INITIAL", default_value = "1s", value_parser = humantime::parse_duration)]
    pub webhook_retry_initial: Duration,
    /// How many requests are made at the same time, of different aggregates.
    #[arg(long, env = "WEBHOOK_CONCURRENCY", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub webhook_concurrency: u16,
    /// After this time another replica replaces one that does not post any more.
    #[arg(long, env = "WEBHOOK_LEASE", default_value = "5s", value_parser = humantime::parse_duration)]
    pub webhook_lease: Duration,
}

impl WebhookArgs {
    pub(crate) fn retry(&self) -> Retry {
        Retry {
            attempts: self.webhook_attempts,
            initial: self.webhook_retry_initial,
            multiplier: 2.0,
            max: Duration::from_secs(300),
        }
    }
}

/// One or two keys, the new one first.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl FromStr for Secrets {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let keys: Option<Vec<_>> = text.split(',').map(|one| key(one.trim())).collect();
        let keys = keys.filter(|keys| keys.len() <= 2);
        keys.map(Secrets).ok_or("one or two of `whsec_` and 24 to 64 bytes in base64, separated by a comma")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

fn key(text: &str) -> Option<Vec<u8>> {
    let key = BASE64_STANDARD.decode(text.strip_prefix("whsec_")?).ok()?;
    (24..=64).contains(&key.len()).then_some(key)
}

fn plain_http(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" => Ok(url),
        _ => Err("it has to begin with http://; a proxy in front of the receiver encrypts".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_secret_is_one_or_two_keys_and_is_not_shown() {
        let secrets: Secrets = KEY.parse().expect("one");
        assert_eq!((secrets.keys().count(), format!("{secrets:?}")), (1, "Secrets(..)".to_owned()));
        assert_eq!(format!("{KEY}, {KEY}").parse::<Secrets>().map(|two| two.0.len()), Ok(2));
        for wrong in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ", "whsec_%", &format!("{KEY},{KEY},{KEY}")] {
            assert!(wrong.parse::<Secrets>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_plain_http_is_accepted() {
        assert!(plain_http("http://127.0.0.1:9/hook").is_ok());
        for wrong in ["https://example.com", "example.com", "ftp://example.com"] {
            assert!(plain_http(wrong).is_err(), "{wrong}");
        }
    }
}
