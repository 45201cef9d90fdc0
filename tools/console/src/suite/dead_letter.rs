//! The administration of dead letters: inspect, replay, discard.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{SERVICES, Service, Suite, SuiteError, with_json};

/// An event that a step could not apply.
#[derive(Debug, Clone, Deserialize)]
pub struct DeadLetter {
    pub id: Uuid,
    pub event_type: String,
    pub step: String,
    pub reason: String,
    pub error_chain: String,
    pub source_service: String,
    pub saga_id: Option<Uuid>,
    pub correlation_id: Option<String>,
    pub trace_id: Option<String>,
    pub attempts: i32,
    /// `PENDING`, `REPLAYED`, `RESOLVED` or `DISCARDED`
    pub status: String,
    pub replay_count: i32,
    /// Only when requested by id.
    #[serde(default)]
    pub actions: Vec<DeadLetterAction>,
}

/// An action on a dead letter.
#[derive(Debug, Clone, Deserialize)]
pub struct DeadLetterAction {
    pub actor: String,
    pub action: String,
    pub reason: Option<String>,
    pub outcome: String,
}

/// What a replay would do.
#[derive(Debug, Clone, Deserialize)]
pub struct DryRun {
    pub selected: u64,
    pub items: Vec<Rehearsal>,
}

/// What the replay of one dead letter would do.
#[derive(Debug, Clone, Deserialize)]
pub struct Rehearsal {
    pub dead_letter_id: Uuid,
    /// `would_apply`, `duplicate`, `refused_by_state`, `would_call` or `would_fail`
    pub outcome: String,
    #[serde(default)]
    pub emits: Vec<String>,
}

impl Suite {
    /// A service's dead letters that wait for a decision.
    pub async fn pending_dead_letters(&self, service: Service) -> Result<Vec<DeadLetter>, SuiteError> {
        self.http.list_of(|| self.admin(Method::GET, service, "dlq").query(&[("status", "PENDING")])).await
    }

    /// How many dead letters of all services wait for a decision.
    pub async fn count_dead_letters(&self) -> Result<u64, SuiteError> {
        #[derive(Deserialize)]
        struct Count {
            count: u64,
        }
        let mut count = 0;
        for service in SERVICES {
            count += self.http.json::<Count>(self.admin(Method::GET, service, "dlq/count")).await?.count;
        }
        Ok(count)
    }

    /// A dry run of replaying a saga's dead letters.
    pub async fn rehearse_replay(&self, service: Service, saga_id: Uuid) -> Result<DryRun, SuiteError> {
        let body = json!({ "filter": { "saga_id": saga_id }, "dry_run": true });
        self.http.json(with_json(self.admin(Method::POST, service, "dlq/replay"), &body)).await
    }

    /// Runs the failed step on the event now, and returns the dead letter with the outcome.
    pub async fn replay(&self, service: Service, id: Uuid, reason: &str) -> Result<DeadLetter, SuiteError> {
        let request = self.admin(Method::POST, service, &format!("dlq/{id}/replay"));
        self.http.json(with_json(request, &json!({ "reason": reason }))).await
    }

    /// Discards the event.
    pub async fn discard(&self, service: Service, id: Uuid, reason: &str) -> Result<DeadLetter, SuiteError> {
        let request = self.admin(Method::DELETE, service, &format!("dlq/{id}"));
        self.http.json(with_json(request, &json!({ "reason": reason }))).await
    }
}
