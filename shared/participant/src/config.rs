//! What can be set about a participant.

use std::time::Duration;

use bootstrap::{NatsArgs, PostgresArgs};
use clap::Args;
use messaging::MessagingArgs;
use saga::{CompensationPolicy, SagaDefinition};

#[derive(Debug, Clone, Args)]
pub struct ParticipantArgs {
    #[command(flatten)]
    pub postgres: PostgresArgs,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub messaging: MessagingArgs,
    /// How long an order may take before its saga times out; the saga's own value by default (60 s).
    #[arg(long, env = "SAGA_DEADLINE", value_parser = humantime::parse_duration)]
    pub saga_deadline: Option<Duration>,
    /// How long a compensation may take before it is driven again; the saga's own value by default (60 s).
    #[arg(long, env = "COMPENSATION_DEADLINE", value_parser = humantime::parse_duration)]
    pub compensation_deadline: Option<Duration>,
    /// How often sagas are looked through for passed deadlines.
    #[arg(long, env = "TIMEOUT_CHECK_EVERY", default_value = "5s", value_parser = humantime::parse_duration)]
    pub timeout_check_every: Duration,
    /// How many sagas one timeout check takes into one transaction.
    #[arg(long, env = "TIMEOUT_BATCH", default_value_t = 100)]
    pub timeout_batch: u16,
}

impl ParticipantArgs {
    /// The saga with this deployment's deadlines. Made once per process, for as long as it lives.
    pub(crate) fn definition(&self, saga: &SagaDefinition) -> &'static SagaDefinition {
        let compensation = CompensationPolicy {
            deadline: self.compensation_deadline.unwrap_or(saga.compensation.deadline),
            ..saga.compensation
        };
        let deadline = self.saga_deadline.unwrap_or(saga.deadline);
        Box::leak(Box::new(SagaDefinition { deadline, compensation, ..*saga }))
    }
}
