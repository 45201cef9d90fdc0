//! The settings of a participant.

#[cfg(feature = "faults")]
use std::path::PathBuf;
use std::time::Duration;

use bootstrap::{AppEnv, NatsArgs, PostgresArgs};
use clap::{ArgAction, Args};
use faults::Faults;
#[cfg(feature = "faults")]
use faults::Guard;
use messaging::MessagingArgs;
use resilience::{Overrides, Policy};
use saga::{CompensationPolicy, Retry, SagaDefinition, Step};
use webhook::WebhookArgs;

#[derive(Debug, Clone, Args)]
pub struct ParticipantArgs {
    #[command(flatten)]
    pub postgres: PostgresArgs,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub messaging: MessagingArgs,
    #[command(flatten)]
    pub resilience: ResilienceArgs,
    #[cfg(feature = "faults")]
    #[command(flatten)]
    pub faults: FaultArgs,
    /// How long an order may take before its saga times out; the saga's own value by default (60 s).
    #[arg(long, env = "SAGA_DEADLINE", value_parser = humantime::parse_duration)]
    pub saga_deadline: Option<Duration>,
    /// How long a compensation may take before it is retried; the saga's own value by default (60 s).
    #[arg(long, env = "COMPENSATION_DEADLINE", value_parser = humantime::parse_duration)]
    pub compensation_deadline: Option<Duration>,
    #[command(flatten)]
    pub timeouts: TimeoutArgs,
    #[command(flatten)]
    pub webhook: WebhookArgs,
    /// Whether the dead letters of a step are replayed automatically when its breaker closes again.
    #[arg(long, env = "DEAD_LETTER_AUTO_REPLAY", action = ArgAction::Set, default_value_t = false)]
    pub dead_letter_auto_replay: bool,
}

impl ParticipantArgs {
    /// The faults of this process: none, unless the build has faults and they are enabled.
    ///
    /// # Errors
    /// If they are enabled in production, or the plan cannot be armed.
    pub fn faults(&self, env: AppEnv) -> anyhow::Result<Faults> {
        #[cfg(feature = "faults")]
        if let FaultArgs { faults_enabled: true, fault_plan, without } = &self.faults {
            anyhow::ensure!(env != AppEnv::Production, "faults cannot be enabled in production (FAULTS_ENABLED)");
            let faults = Faults::armable_without(without.clone());
            tracing::warn!(?without, "faults can be armed in this process");
            if let Some(path) = fault_plan {
                faults.load_plan(path)?;
            }
            return Ok(faults);
        }
        let _ = env;
        Ok(Faults::none())
    }

    /// The saga with this deployment's deadlines. Created once per process, and never freed.
    pub fn definition(&self, saga: &SagaDefinition) -> &'static SagaDefinition {
        let compensation = CompensationPolicy {
            deadline: self.compensation_deadline.unwrap_or(saga.compensation.deadline),
            ..saga.compensation
        };
        let deadline = self.saga_deadline.unwrap_or(saga.deadline);
        Box::leak(Box::new(SagaDefinition { deadline, compensation, ..*saga }))
    }
}

/// What happens when a saga's deadline has passed.
#[derive(Debug, Clone, Args)]
pub struct TimeoutArgs {
    /// Whether this replica checks sagas for passed deadlines. One replica of any service that does is sufficient.
    #[arg(long, env = "TIMEOUT_DETECTOR_ENABLED", action = ArgAction::Set, default_value_t = true)]
    pub timeout_detector_enabled: bool,
    /// Whether sagas whose deadline has passed are timed out, which compensates them. Otherwise each is logged, and may still
    /// complete, until an operator asks for `/api/admin/timeouts/check`. The same in all services.
    #[arg(long, env = "AUTO_COMPENSATE", action = ArgAction::Set, default_value_t = true)]
    pub auto_compensate: bool,
    /// How often sagas are checked for passed deadlines.
    #[arg(long, env = "TIMEOUT_CHECK_EVERY", default_value = "5s", value_parser = humantime::parse_duration)]
    pub timeout_check_every: Duration,
    /// How many sagas one transaction of the timeout check takes.
    #[arg(long, env = "TIMEOUT_BATCH", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pub timeout_batch: u16,
}

/// Overrides of the retry and breaker policies in the saga's table.
#[derive(Debug, Clone, Args)]
pub struct ResilienceArgs {
    /// `step.setting=value`, several separated by commas: `process_payment.open_for=2s,reserve_stock.attempts=7`.
    /// Settings: attempts, initial, multiplier, max, time_limit, window, min_calls, failure_rate, open_for,
    /// half_open_probes.
    #[arg(long = "resilience", env = "RESILIENCE", default_value = "", hide_default_value = true)]
    pub overrides: Overrides,
    /// Enables all circuit breakers; without them every call is admitted.
    #[arg(long, env = "BREAKERS_ENABLED", action = ArgAction::Set, default_value_t = true)]
    pub breakers_enabled: bool,
    /// Enables retries of all steps; without them the first failure of an event makes it a dead letter.
    #[arg(long, env = "RETRIES_ENABLED", action = ArgAction::Set, default_value_t = true)]
    pub retries_enabled: bool,
}

impl ResilienceArgs {
    /// The policy of a step in this deployment.
    pub fn policy(&self, step: &Step) -> Policy {
        let policy = self.overrides.policy(step);
        match self.retries_enabled {
            true => policy,
            false => Policy { retry: Retry { attempts: 1, ..policy.retry }, ..policy },
        }
    }
}

/// Fault injection.
#[cfg(feature = "faults")]
#[derive(Debug, Clone, Args)]
pub struct FaultArgs {
    /// Allows arming faults, over `/api/admin/faults` and by a plan. Not in production.
    #[arg(long, env = "FAULTS_ENABLED", action = ArgAction::Set, default_value_t = false)]
    pub faults_enabled: bool,
    /// A JSON file with a list of faults to arm at the start.
    #[arg(long, env = "FAULT_PLAN", requires = "faults_enabled")]
    pub fault_plan: Option<PathBuf>,
    /// Switches guarantees off, to demonstrate their purpose: `outbox`, `inbox`. On a throw-away database only.
    #[arg(long, env = "WITHOUT", value_delimiter = ',', requires = "faults_enabled")]
    pub without: Vec<Guard>,
}
