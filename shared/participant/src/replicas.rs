//! The replicas of this service, and questions that each of them answers for itself. A replica is known by a lease that it
//! renews every second, so who does not answer is named and not overlooked. Questions and answers travel over core NATS,
//! below a subject of the service's own; what has to outlast a lost message is in the database, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context as _;
use async_nats::{Client, connection::State};
use futures_util::StreamExt as _;
use messaging::{Report, Subscription, housekeeping, lease};
use saga::Service;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Participant, admin};

/// How often a replica says that it is there, and how long after the last time it is taken to be.
const PRESENT_EVERY: Duration = Duration::from_secs(1);
const PRESENT_FOR: Duration = Duration::from_secs(3);
/// How long the replicas that are there have for their answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What a replica can be asked, or asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Question {
    ListBreakers,
    ResetBreaker {
        step: String,
    },
    /// Its consumers are paused: do they take events still?
    CloseIntake {
        step: String,
    },
    #[cfg(feature = "faults")]
    ListFaults,
    #[cfg(feature = "faults")]
    HoldFault(Box<faults::Armed>),
    /// One fault, or all of them.
    #[cfg(feature = "faults")]
    DisarmFaults(Option<u64>),
}

#[derive(Serialize, Deserialize)]
struct Asked {
    by: String,
    question: Question,
}

#[derive(Serialize, Deserialize)]
struct Answer<T> {
    replica: String,
    answer: T,
}

/// What the replicas have answered.
pub(crate) struct Answers<T> {
    /// By replica; of this one first.
    pub(crate) given: Vec<(String, T)>,
    /// Replicas that are there and have not answered.
    pub(crate) missing: BTreeSet<String>,
}

/// The other replicas, as one of them sees them.
#[derive(Clone)]
pub(crate) struct Replicas {
    client: Client,
    service: Service,
    /// Names this one.
    holder: String,
    pool: PgPool,
}

impl Replicas {
    pub(crate) fn new(client: Client, service: Service, holder: String, pool: PgPool) -> Self {
        Replicas { client, service, holder, pool }
    }

    /// Asks all other replicas, and adds their answers to this one's own. Waits until all have answered that are there, and
    /// not longer than the limit.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, question: Question, own: T) -> Answers<T> {
        let mut given = BTreeMap::new();
        let mut missing = self.others().await;
        if missing.as_ref().is_none_or(|others| !others.is_empty()) {
            match timeout(ANSWER_LIMIT, self.gather(question, &mut given, &mut missing)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the other replicas could not be asked"),
            }
        }
        let given = [(self.holder.clone(), own)].into_iter().chain(given).collect();
        Answers { given, missing: missing.unwrap_or_default() }
    }

    /// The other replicas that are there; none when the database does not tell.
    async fn others(&self) -> Option<BTreeSet<String>> {
        match timeout(ANSWER_LIMIT, lease::present(&self.pool)).await {
            Ok(Ok(replicas)) => Some(replicas.into_iter().filter(|replica| *replica != self.holder).collect()),
            _ => {
                tracing::warn!("the database does not tell which replicas there are: those are asked that hear it");
                None
            }
        }
    }

    async fn gather<T: DeserializeOwned>(
        &self,
        question: Question,
        given: &mut BTreeMap<String, T>,
        missing: &mut Option<BTreeSet<String>>,
    ) -> anyhow::Result<()> {
        // The client would keep the question, and ask it when nobody waits for an answer any more.
        anyhow::ensure!(self.client.connection_state() == State::Connected, "the broker is away");
        let to = format!("{}.answer.{}", self.service.replicas_subject(), Uuid::now_v7());
        let mut answers = self.client.subscribe(to.clone()).await?;
        let asked = serde_json::to_vec(&Asked { by: self.holder.clone(), question })?;
        self.client.publish_with_reply(self.questions(), to, asked.into()).await?;
        while missing.as_ref().is_none_or(|missing| !missing.is_empty()) {
            let message = answers.next().await.context("the connection to the broker is closed")?;
            // What cannot be read is another build's; it stays missing.
            if let Ok(Answer { replica, answer }) = serde_json::from_slice(&message.payload) {
                missing.iter_mut().for_each(|missing| _ = missing.remove(&replica));
                given.insert(replica, answer);
            }
        }
        Ok(())
    }

    fn questions(&self) -> String {
        format!("{}.ask", self.service.replicas_subject())
    }

    /// Says that this replica is there, and answers, until `stop`.
    pub(crate) async fn run(
        self,
        participant: Participant,
        subscriptions: Vec<Subscription>,
        report: Report,
        stop: CancellationToken,
    ) {
        tokio::join!(
            self.answer_all(&participant, &subscriptions, &stop),
            self.be_present(&participant, report, &stop)
        );
        let absent = async { lease::be_absent(&mut *self.pool.acquire().await?, &self.holder).await };
        if let Err(error) = absent.await {
            tracing::debug!(%error, "this replica will be taken to be there for some seconds more");
        }
    }

    async fn be_present(&self, participant: &Participant, report: Report, stop: &CancellationToken) {
        housekeeping::every(PRESENT_EVERY, stop, || async {
            let present = async {
                lease::be_present(&mut *self.pool.acquire().await?, &self.holder, PRESENT_FOR).await?;
                #[cfg(feature = "faults")]
                participant.shared_faults.catch_up().await?;
                #[cfg(not(feature = "faults"))]
                let _ = participant;
                Ok::<(), sqlx::Error>(())
            };
            match present.await {
                // From now on it is as good as ready that others know of it; not being known is no reason not to be.
                Ok(()) => report(Ok(())),
                Err(error) => tracing::debug!(%error, "this replica could not say that it is there"),
            }
        })
        .await;
    }

    async fn answer_all(&self, participant: &Participant, subscriptions: &[Subscription], stop: &CancellationToken) {
        let mut questions = match self.client.subscribe(self.questions()).await {
            Ok(questions) => questions,
            Err(error) => return tracing::error!(%error, "this replica answers no other"),
        };
        loop {
            let question = tokio::select! {
                question = questions.next() => question,
                () = stop.cancelled() => return,
            };
            let Some(question) = question else { return };
            if let Err(error) = self.answer(participant, subscriptions, &question).await {
                tracing::warn!(%error, "a question of another replica is not answered");
            }
        }
    }

    async fn answer(
        &self,
        participant: &Participant,
        subscriptions: &[Subscription],
        message: &async_nats::Message,
    ) -> anyhow::Result<()> {
        let Asked { by, question } = serde_json::from_slice(&message.payload)?;
        let to = message.reply.clone().context("nobody waits for the answer")?;
        if by == self.holder {
            return Ok(());
        }
        let answer = admin::answer(participant, subscriptions, question).await?;
        let answer = serde_json::to_vec(&Answer { replica: self.holder.clone(), answer })?;
        Ok(self.client.publish(to, answer.into()).await?)
    }
}
