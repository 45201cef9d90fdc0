//! The coordinator: drives sagas step by step, each transition stored before the next command is given.

mod places;
mod turn;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use messaging::{Context, Outbox, StepError};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use resilience::{Breakers, Policy};
use saga::{SagaState, Status, Step};
use saga_store::{Request, StepTransaction, set_back};
use sqlx::PgPool;
use tokio::{
    sync::{mpsc, oneshot},
    task::{self, JoinError, JoinSet},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{places::Places, turn::Stand};
use crate::{
    Effect, Next, Orchestration, Reply,
    coordination::{self, Longest},
};

/// The pause before a saga is driven on after the database failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How many sagas are taken over at once.
const TAKE_OVER: i64 = 100;
/// When a turn waits longer for a connection, or a command for its place, a saga that begins, and has to wait some eight times,
/// could only time out.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// A saga, as its commands need it.
#[derive(Debug, Clone)]
pub struct Commanded {
    pub saga_id: Uuid,
    pub business_key: Uuid,
    /// The context of the request that began the saga.
    pub context: Context,
}

/// Why a command got no usable answer.
#[derive(Debug)]
pub enum Failure {
    /// The same command may be answered later.
    Transient(String),
    /// No repeat can help, as of a command that the participant cannot read.
    Permanent(String),
}

/// The business side of an orchestrated saga.
pub trait Coordinated: Send + Sync + 'static {
    type Command: Send + Sync;

    /// The command of a step, from this service's own rows.
    fn prepare(
        &self,
        step: &'static Step,
        saga: &Commanded,
    ) -> impl Future<Output = Result<Self::Command, StepError>> + Send;

    /// Has the step's participant take the step; it must answer a repeat as it answered first. No transaction is open.
    fn command(
        &self,
        step: &'static Step,
        saga: &Commanded,
        command: &Self::Command,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Writes the effect on this service's own rows, in the transaction of the transition.
    fn apply(
        &self,
        tx: &mut StepTransaction<Request>,
        saga: &Commanded,
        effect: &Effect,
    ) -> impl Future<Output = Result<(), StepError>> + Send;
}

/// What a coordinator needs to know of its deployment.
#[derive(Clone)]
pub struct Settings {
    /// Another replica goes on when a coordinator has not been heard of for this long.
    pub lease: Duration,
    /// The limit of a step, and the retries of its command within it.
    pub policy: Arc<dyn Fn(&Step) -> Policy + Send + Sync>,
    /// How many commands of a step this replica waits for at once. More than its participant can work on would wait there, for
    /// connections and for each other's locks, until they fail, and the step with them.
    pub commands: fn(&Step) -> usize,
}

/// The end of a saga, as its driver saw it: none when another replica goes on with it.
pub type Ended = oneshot::Receiver<Option<Status>>;

/// One replica's coordinator.
pub struct Coordinator<S> {
    business: S,
    orchestration: Orchestration,
    outbox: Outbox,
    pool: PgPool,
    /// Half of the pool's, for the sagas' turns. The others stay for the coordinator's lease and the service's other work.
    connections: Places,
    /// By the step's name.
    commands: HashMap<&'static str, Places>,
    breakers: Breakers,
    settings: Settings,
    /// This replica.
    replica: Uuid,
    begun: mpsc::UnboundedSender<Begun>,
    /// Taken by [`Coordinator::run`].
    to_drive: Mutex<Option<mpsc::UnboundedReceiver<Begun>>>,
    metrics: Metrics,
}

/// A saga that this replica has begun, and who waits for its end.
type Begun = (Uuid, oneshot::Sender<Option<Status>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    step: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, Default)]
struct Metrics {
    driven: Gauge,
    waiting: Gauge,
    taken_over: Counter,
    commands: Family<Outcome, Counter>,
}

/// The sagas that this replica drives, and who waits for their ends.
#[derive(Default)]
struct Driven {
    driving: JoinSet<Option<Status>>,
    sagas: HashMap<task::Id, Uuid>,
    waiting: HashMap<Uuid, Vec<oneshot::Sender<Option<Status>>>>,
}

impl Driven {
    /// Also after a panic, whose saga is then taken over.
    fn end(&mut self, done: Result<(task::Id, Option<Status>), JoinError>) {
        let (task, status) = done.unwrap_or_else(|failure| (failure.id(), None));
        let Some(saga_id) = self.sagas.remove(&task) else { return };
        for ended in self.waiting.remove(&saga_id).into_iter().flatten() {
            // Fails when nobody waits any more.
            let _ = ended.send(status);
        }
    }
}

impl<S: Coordinated> Coordinator<S> {
    /// The coordinator of a replica. Sagas begin in transactions of any outbox of the service.
    pub fn new(
        business: S,
        orchestration: Orchestration,
        (outbox, pool): (Outbox, PgPool),
        breakers: Breakers,
        settings: Settings,
        registry: &mut Registry,
    ) -> Self {
        let (begun, to_drive) = mpsc::unbounded_channel();
        let metrics = Metrics::default();
        registry.register("coordinator_sagas", "Orchestrated sagas that this replica drives", metrics.driven.clone());
        registry.register(
            "coordinator_waiting",
            "Orchestrated sagas that wait for a database connection, or to give a command",
            metrics.waiting.clone(),
        );
        registry.register(
            "coordinator_taken_over",
            "Orchestrated sagas that this replica took over, from another one or from before it started",
            metrics.taken_over.clone(),
        );
        registry.register(
            "coordinator_commands",
            "Attempts at commands to participants, by step and outcome: done, refused, failed, not_admitted",
            metrics.commands.clone(),
        );
        let to_drive = Mutex::new(Some(to_drive));
        let replica = Uuid::now_v7();
        let places = |number: usize| Places::new(number, metrics.waiting.clone());
        let connections = places((pool.options().get_max_connections() as usize / 2).max(1));
        let steps = orchestration.definition.steps.iter();
        let commands = steps.map(|step| (step.name, places((settings.commands)(step)))).collect();
        Coordinator {
            business,
            orchestration,
            outbox,
            pool,
            connections,
            commands,
            breakers,
            settings,
            replica,
            begun,
            to_drive,
            metrics,
        }
    }

    pub fn definition(&self) -> &'static saga::SagaDefinition {
        self.orchestration.definition
    }

    /// Whether this replica drives so many sagas that a new one could only time out.
    pub fn is_behind(&self) -> bool {
        self.commands.values().chain([&self.connections]).any(|places| places.longest_wait() > LONGEST_WAIT)
    }

    /// Records that this replica drives these new sagas, in the transaction that starts them.
    pub async fn begin(&self, tx: &mut StepTransaction<()>, saga_ids: &[Uuid]) -> Result<(), StepError> {
        let first = self.orchestration.next(&SagaState::started(), false);
        let Next::Command(first) = first else { return Err(StepError::failed("the saga has no first step")) };
        Ok(coordination::begin(tx.conn(), self.replica, saga_ids, self.limit(first)).await?)
    }

    /// Drives a saga that has begun; call it after the commit.
    pub fn drive(&self, saga_id: Uuid) -> Ended {
        let (ended, end) = oneshot::channel();
        // Fails when the service stops: then another replica takes the saga over.
        drop(self.begun.send((saga_id, ended)));
        end
    }

    /// Those of these sagas that are orchestrated by this coordinator's definition.
    pub async fn own(&self, tx: &mut StepTransaction<()>, saga_ids: &[Uuid]) -> Result<Vec<Uuid>, StepError> {
        Ok(coordination::of_type(tx.conn(), self.orchestration.definition, saga_ids).await?)
    }

    /// Has these sagas driven on, in the transaction that changed them: cancelled by the customer, or resumed by an operator.
    pub async fn hand_over<C>(&self, tx: &mut StepTransaction<C>, saga_ids: &[Uuid]) -> Result<(), StepError> {
        Ok(coordination::hand_over(tx.conn(), saga_ids).await?)
    }

    /// Records that an operator has the compensation of a locked saga go on.
    pub fn resume(&self, tx: &mut StepTransaction<Request>, saga: &Request, why: String) -> Result<(), StepError> {
        turn::record(tx, saga, self.orchestration.resumed(why))
    }

    /// Drives sagas until `stop`: those that this replica begins, and those that no living replica drives.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let taken = self.to_drive.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut begun) = taken else { return stop.cancelled().await };
        let mut tick = interval((self.settings.lease / 5).max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut driven, mut looking) = (Driven::default(), JoinSet::new());
        loop {
            tokio::select! {
                Some((saga_id, ended)) = begun.recv() => {
                    self.drive_too(&mut driven, saga_id, &stop);
                    driven.waiting.entry(saga_id).or_default().push(ended);
                }
                Some(done) = driven.driving.join_next_with_id() => driven.end(done),
                // Beside the sagas, which must not wait for it.
                _ = tick.tick() => if looking.is_empty() {
                    let sagas = driven.sagas.values().copied().collect();
                    looking.spawn(Arc::clone(&self).look(sagas));
                },
                Some(found) = looking.join_next() => for saga_id in found.unwrap_or_default() {
                    if self.drive_too(&mut driven, saga_id, &stop) {
                        self.metrics.taken_over.inc();
                    }
                },
                () = stop.cancelled() => break,
            }
            self.metrics.driven.set(i64::try_from(driven.sagas.len()).unwrap_or(i64::MAX));
        }
        while driven.driving.join_next().await.is_some() {}
        if let Err(error) = coordination::end_lease(&self.pool, self.replica).await {
            tracing::warn!(%error, "this replica's sagas are taken over when its lease has expired");
        }
    }

    /// Drives the saga, unless it is driven already.
    fn drive_too(self: &Arc<Self>, driven: &mut Driven, saga_id: Uuid, stop: &CancellationToken) -> bool {
        let is_new = !driven.sagas.values().any(|driven| *driven == saga_id);
        if is_new {
            let task = driven.driving.spawn(Arc::clone(self).drive_on(saga_id, stop.clone()));
            driven.sagas.insert(task.id(), saga_id);
        }
        is_new
    }

    /// Renews the lease, and takes over what nobody drives. `driven` are those that this replica drives.
    async fn look(self: Arc<Self>, driven: Vec<Uuid>) -> Vec<Uuid> {
        let looked = self.in_time(async {
            coordination::renew_lease(&self.pool, self.replica, self.settings.lease).await?;
            set_back::count_from_now(&self.pool, self.orchestration.definition).await?;
            Ok(coordination::take_over(&self.pool, self.replica, &driven, TAKE_OVER, self.longest()).await?)
        });
        looked.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the coordinator's lease cannot be renewed; it is repeated");
            Vec::new()
        })
    }

    fn longest(&self) -> Longest {
        let definition = self.orchestration.definition;
        let step = definition.steps.iter().map(|step| self.limit(step)).max().unwrap_or_default();
        Longest { lease: self.settings.lease, step, compensation: definition.compensation.deadline }
    }

    /// A connection that is half open would keep a saga waiting for ever.
    async fn in_time<T>(&self, read: impl Future<Output = Result<T, StepError>>) -> Result<T, StepError> {
        let slow = || StepError::unavailable("the database has not answered for the length of a lease");
        timeout(self.settings.lease, read).await.unwrap_or_else(|_| Err(slow()))
    }

    /// Drives one saga until it ends, waits, or is another replica's.
    async fn drive_on(self: Arc<Self>, saga_id: Uuid, stop: CancellationToken) -> Option<Status> {
        while !stop.is_cancelled() {
            let turn = tokio::select! {
                turn = self.turn(saga_id) => turn,
                // What was commanded is commanded again by whoever goes on.
                () = stop.cancelled() => break,
            };
            match turn {
                Ok(Stand::Goes) => {}
                Ok(Stand::Ended(status)) => return Some(status),
                Ok(Stand::Lost) => break,
                Err(error) => {
                    tracing::warn!(%saga_id, %error, "a saga's transition failed; it is repeated");
                    tokio::select! {
                        () = sleep(PAUSE) => {}
                        () = stop.cancelled() => break,
                    }
                }
            }
        }
        None
    }
}
