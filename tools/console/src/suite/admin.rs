//! The administration that all services share: consumers, relays, circuit breakers and metrics.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::net::lookup_host;
use uuid::Uuid;

use super::{Service, Suite, SuiteError, http::Page, until};

/// A replay runs a step, which may take longer than other requests. Below the time limit of a request to the console.
const OPERATION_TIME_LIMIT: Duration = Duration::from_secs(30);

/// A step's consumer on one stream.
#[derive(Debug, Clone, Deserialize)]
pub struct Consumer {
    pub step: String,
    pub consumer: String,
    pub stream: String,
    /// Whether a replica has a pull request pending at the broker.
    pub pulling: Option<bool>,
    /// Why it is paused.
    pub paused: Option<String>,
}

impl Consumer {
    pub fn is_paused_by_operator(&self) -> bool {
        self.paused.as_deref() == Some("paused by an operator")
    }
}

/// The relay that publishes a service's events.
#[derive(Debug, Clone, Deserialize)]
pub struct Relay {
    pub holder: String,
    /// Grows with every takeover.
    pub epoch: i64,
    pub active: bool,
    pub paused: bool,
    /// Events that wait to be published.
    pub lag: i64,
    /// How long the first of them has waited.
    #[serde(default)]
    pub oldest_pending_seconds: Option<f64>,
    /// Why it cannot publish.
    pub last_failure: Option<String>,
}

/// An event in its service's outbox, or published from there.
#[derive(Debug, Clone, Deserialize)]
pub struct OutboxEntry {
    /// `PENDING`, `PARKED` or `PUBLISHED`
    pub state: String,
    /// How often it was republished because the broker had lost it.
    pub republication: i64,
}

/// The breakers of all replicas, those of the answering one first, and their changes.
#[derive(Debug, Clone, Deserialize)]
pub struct Breakers {
    pub items: Vec<Breaker>,
    /// Newest first.
    #[serde(default)]
    pub changes: Vec<BreakerChange>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Breaker {
    pub replica: String,
    pub step: String,
    /// `closed`, `open` or `half-open`
    pub state: String,
    pub why: Option<String>,
    /// While open: until it probes.
    pub retry_in_seconds: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct BreakerChange {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub step: String,
    pub from: String,
    pub to: String,
    pub why: Option<String>,
}

impl Breaker {
    pub fn is_closed(&self) -> bool {
        self.state == "closed"
    }
}

impl Suite {
    /// A list of a service's administration, or its one entry, as the service answers.
    pub(crate) async fn listed(&self, service: Service, path: &str) -> Result<Value, SuiteError> {
        self.http.json(self.admin(Method::GET, service, path)).await
    }

    /// Sends an operation to a service; `path` is below `/api/`. `outfit` adds headers, and query or body.
    pub(crate) async fn operate(
        &self,
        service: Service,
        method: Method,
        path: &str,
        outfit: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Value, SuiteError> {
        let request = self.api(method, service, path).bearer_auth(&self.addresses.admin_token);
        let answer = self.http.text(outfit(request.timeout(OPERATION_TIME_LIMIT))).await?;
        Ok(serde_json::from_str(&answer).unwrap_or(Value::String(answer)))
    }

    /// The series of a service's metrics whose names begin so, each summed over the replicas.
    pub(crate) async fn samples(&self, service: Service, prefix: &str) -> Result<BTreeMap<String, f64>, SuiteError> {
        let text = self.metrics(service).await?;
        let mut samples = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with(prefix)) {
            // An exemplar may follow the value.
            let sample = line.split(" # ").next().and_then(|sample| sample.rsplit_once(' '));
            if let Some((series, Ok(value))) = sample.map(|(series, value)| (series, value.parse::<f64>())) {
                *samples.entry(series.to_owned()).or_default() += value;
            }
        }
        Ok(samples)
    }

    pub async fn outbox_entry(&self, service: Service, event_id: Uuid) -> Result<Option<OutboxEntry>, SuiteError> {
        self.http.found(self.admin(Method::GET, service, &format!("outbox/{event_id}"))).await
    }

    pub async fn consumers(&self, service: Service) -> Result<Vec<Consumer>, SuiteError> {
        Ok(self.http.json::<Page<Consumer>>(self.admin(Method::GET, service, "consumers")).await?.items)
    }

    /// Pauses the consumer of a step; returns when it has stopped.
    pub async fn pause_consumer(&self, service: Service, step: &str) -> Result<(), SuiteError> {
        const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);
        self.http.text(self.admin(Method::POST, service, &format!("consumers/{step}/pause"))).await?;
        let stopped = async || {
            let consumers = self.consumers(service).await?;
            Ok(consumers.iter().all(|c| c.step != step || c.pulling == Some(false)).then_some(()))
        };
        until(PAUSE_TIMEOUT, stopped).await.map(drop)
    }

    pub async fn resume_consumer(&self, service: Service, step: &str) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, service, &format!("consumers/{step}/resume"))).await
    }

    pub async fn relay(&self, service: Service) -> Result<Relay, SuiteError> {
        self.http.json(self.admin(Method::GET, service, "relay")).await
    }

    pub async fn pause_relay(&self, service: Service) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, service, "relay/pause")).await
    }

    pub async fn resume_relay(&self, service: Service) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, service, "relay/resume")).await
    }

    pub async fn breakers(&self, service: Service) -> Result<Breakers, SuiteError> {
        self.http.json(self.admin(Method::GET, service, "breakers")).await
    }

    /// Closes a step's breaker in every replica.
    pub async fn reset_breaker(&self, service: Service, step: &str) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, service, &format!("breakers/{step}/reset"))).await
    }

    /// The sum of a metric over all labels and all replicas behind the service's address; `None` without such a metric.
    pub async fn metric(&self, service: Service, name: &str) -> Result<Option<f64>, SuiteError> {
        Ok(sum_of(&self.metrics(service).await?, name, ""))
    }

    /// The same of the samples with one label, such as `state="used"`.
    pub async fn labelled_metric(&self, service: Service, name: &str, label: &str) -> Result<Option<f64>, SuiteError> {
        Ok(sum_of(&self.metrics(service).await?, name, label))
    }

    async fn metrics(&self, service: Service) -> Result<String, SuiteError> {
        let mut all = String::new();
        for replica in replicas_at(self.addresses.of(service)).await {
            all += &self.http.text(self.http.request(Method::GET, &format!("{replica}/metrics"))).await?;
        }
        Ok(all)
    }
}

/// The address of each replica that the host name resolves to; the address itself when it resolves to none.
async fn replicas_at(address: &str) -> Vec<String> {
    let Some((host, port)) = address.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':')) else {
        return vec![address.to_owned()];
    };
    // A host with IPv4 and IPv6 addresses is one replica.
    let found = lookup_host(format!("{host}:{port}")).await.into_iter().flatten().filter(SocketAddr::is_ipv4);
    let replicas: Vec<String> = found.map(|replica| format!("http://{replica}")).collect();
    if replicas.is_empty() { vec![address.to_owned()] } else { replicas }
}

/// The sum of a metric's samples in the Prometheus text format: of those with a label, or of all when it is empty.
fn sum_of(text: &str, name: &str, label: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(labelled) => labelled.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        if !labels.contains(label) {
            return None;
        }
        // An exemplar or a timestamp may follow.
        value.split(' ').next()?.parse::<f64>().ok()
    });
    samples.reduce(|sum, sample| sum + sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_of_its_own_samples() {
        let text =
            "# TYPE a counter\na_total{step=\"x\"} 2 # {trace=\"1\"} 9\na_total{step=\"y\"} 3\na_total_more 7\nb 1.5\n";
        assert_eq!(sum_of(text, "a_total", ""), Some(5.0));
        assert_eq!(sum_of(text, "a_total", "step=\"y\""), Some(3.0));
        assert_eq!(sum_of(text, "b", ""), Some(1.5));
        assert_eq!(sum_of(text, "b", "step=\"y\""), None);
        assert_eq!(sum_of(text, "c", ""), None);
    }
}
