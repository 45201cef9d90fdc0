//! Queries to all replicas of this service (scatter-gather). Each replica renews a lease every second, so a replica that does
//! not answer is reported as missing. Questions and answers use core NATS, on subjects of the service; state that must survive
//! a lost message is also in the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use async_nats::{Client, connection::State};
use futures_util::StreamExt as _;
use messaging::{Report, Subscription, lease, periodic};
use saga::Service;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Participant, admin};

/// How often a replica renews its presence lease, and how long the lease lasts.
const PRESENT_EVERY: Duration = Duration::from_secs(1);
const PRESENT_FOR: Duration = Duration::from_secs(3);
/// The time limit of the replicas' answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A question or command to a replica.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Question {
    ListBreakers,
    ResetBreaker {
        step: String,
    },
    /// Whether the replica's paused consumers have stopped taking events.
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

/// The replicas' answers.
pub(crate) struct Answers<T> {
    /// By replica; that of this one first.
    pub(crate) given: Vec<(String, T)>,
    /// Live replicas that have not answered.
    pub(crate) missing: BTreeSet<String>,
}

/// Access to the other replicas.
#[derive(Clone)]
pub(crate) struct Replicas {
    client: Client,
    service: Service,
    /// The name of this replica.
    holder: String,
    pool: PgPool,
}

impl Replicas {
    pub(crate) fn new(client: Client, service: Service, holder: String, pool: PgPool) -> Self {
        Replicas { client, service, holder, pool }
    }

    /// Asks all other replicas, and adds their answers to this one's own. Waits until all live replicas have answered, at most
    /// for the time limit.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, question: Question, own: T) -> Answers<T> {
        let mut given = BTreeMap::new();
        let mut missing = self.others().await;
        if missing.as_ref().is_none_or(|others| !others.is_empty()) {
            match timeout(ANSWER_LIMIT, self.collect_answers(question, &mut given, &mut missing)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the other replicas could not be queried"),
            }
        }
        let given = [(self.holder.clone(), own)].into_iter().chain(given).collect();
        Answers { given, missing: missing.unwrap_or_default() }
    }

    /// The other live replicas; none when the database cannot be read.
    async fn others(&self) -> Option<BTreeSet<String>> {
        match timeout(ANSWER_LIMIT, lease::replicas(&self.pool)).await {
            Ok(Ok(replicas)) => Some(replicas.into_iter().filter(|replica| *replica != self.holder).collect()),
            _ => {
                tracing::warn!("the live replicas could not be read from the database; waiting for any answers");
                None
            }
        }
    }

    async fn collect_answers<T: DeserializeOwned>(
        &self,
        question: Question,
        given: &mut BTreeMap<String, T>,
        missing: &mut Option<BTreeSet<String>>,
    ) -> anyhow::Result<()> {
        // Otherwise the client would buffer the question, and send it after the time limit.
        anyhow::ensure!(self.client.connection_state() == State::Connected, "the broker cannot be reached");
        let to = format!("{}.answer.{}", self.service.replicas_subject(), Uuid::now_v7());
        let mut answers = self.client.subscribe(to.clone()).await?;
        let asked = serde_json::to_vec(&Asked { by: self.holder.clone(), question })?;
        self.client.publish_with_reply(self.questions(), to, asked.into()).await?;
        while missing.as_ref().is_none_or(|missing| !missing.is_empty()) {
            let message = answers.next().await.context("the connection to the broker is closed")?;
            // An unreadable answer is from another build; its replica stays missing.
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

    /// Renews this replica's presence, and answers the others, until `stop`.
    pub(crate) async fn run(
        self,
        participant: Arc<Participant>,
        subscriptions: Vec<Subscription>,
        report: Report,
        stop: CancellationToken,
    ) {
        tokio::join!(
            self.answer_all(&participant, &subscriptions, &stop),
            self.renew_presence(&participant, report, &stop)
        );
        let absent = async { lease::withdraw_replica(&mut *self.pool.acquire().await?, &self.holder).await };
        if let Err(error) = absent.await {
            tracing::debug!(%error, "the presence of this replica could not be ended; it expires in some seconds");
        }
    }

    async fn renew_presence(&self, participant: &Participant, report: Report, stop: &CancellationToken) {
        periodic::every(PRESENT_EVERY, stop, || async {
            let present = async {
                lease::announce_replica(&mut *self.pool.acquire().await?, &self.holder, PRESENT_FOR).await?;
                #[cfg(feature = "faults")]
                participant.shared_faults.catch_up().await?;
                #[cfg(not(feature = "faults"))]
                let _ = participant;
                Ok::<(), sqlx::Error>(())
            };
            match present.await {
                // Ready after the first success; later failures do not make the replica unready.
                Ok(()) => report(Ok(())),
                Err(error) => tracing::debug!(%error, "the presence of this replica could not be renewed"),
            }
        })
        .await;
    }

    async fn answer_all(&self, participant: &Participant, subscriptions: &[Subscription], stop: &CancellationToken) {
        let mut questions = match self.client.subscribe(self.questions()).await {
            Ok(questions) => questions,
            Err(error) => return tracing::error!(%error, "this replica cannot answer other replicas"),
        };
        loop {
            let question = tokio::select! {
                question = questions.next() => question,
                () = stop.cancelled() => return,
            };
            let Some(question) = question else { return };
            if let Err(error) = self.answer(participant, subscriptions, &question).await {
                tracing::warn!(%error, "a question of another replica could not be answered");
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
        let to = message.reply.clone().context("the question has no reply subject")?;
        if by == self.holder {
            return Ok(());
        }
        let answer = admin::answer(participant, subscriptions, question).await?;
        let answer = serde_json::to_vec(&Answer { replica: self.holder.clone(), answer })?;
        Ok(self.client.publish(to, answer.into()).await?)
    }
}
