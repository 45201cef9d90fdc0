//! The unit of work of a step. Its commit is the only source of a [`Committed`], without which nothing is acknowledged.

use std::{
    collections::{HashMap, HashSet},
    ops::{Deref, DerefMut},
};

use saga::Step;
use uuid::Uuid;

use super::UnitOfWork;
use crate::{Committed, StepError, batch::Effect, inbox};

/// The unit of work of a step: for a batch whose inbox rows are claimed, or without an event.
#[derive(Debug)]
pub struct ClaimedWork {
    pub(super) work: UnitOfWork,
    pub(super) step: &'static Step,
    pub(super) covered: Vec<Uuid>,
    /// Those of them that the consumer has not processed before.
    pub(super) fresh: HashSet<Uuid>,
}

impl ClaimedWork {
    /// The bare unit of work; its commit acknowledges nothing.
    pub fn into_unclaimed(self) -> UnitOfWork {
        self.work
    }

    pub async fn commit(self) -> Result<Committed, StepError> {
        self.commit_without(Vec::new()).await
    }

    /// Commits without these events: their inbox claims are deleted, and each error is handled as if its delivery had been
    /// processed alone.
    pub async fn commit_without(mut self, deferred: Vec<(Uuid, StepError)>) -> Result<Committed, StepError> {
        if !deferred.is_empty() {
            let left_out: Vec<Uuid> = deferred.iter().map(|(event_id, _)| *event_id).collect();
            inbox::unclaim(self.work.conn(), &self.step.consumer(), &left_out).await?;
            self.covered.retain(|event_id| !left_out.contains(event_id));
        }
        let effect = |event_id: &Uuid| match self.work.answers.get(event_id) {
            Some(effect) => *effect,
            None if !self.fresh.contains(event_id) => Effect::Duplicate,
            None if self.step.emits.is_empty() => Effect::Applied,
            None => Effect::Skipped,
        };
        let covered: HashMap<_, _> = self.covered.iter().map(|event_id| (*event_id, effect(event_id))).collect();
        let of = |effect: Effect| covered.values().filter(|e| **e == effect).count();
        let (fresh, refused) = (covered.len() - of(Effect::Duplicate), of(Effect::Refused));
        let (step, deliveries) = (self.step.name, self.covered.len());
        if deliveries > 0 {
            self.work.after_commit(move |metrics| metrics.count_deliveries(step, deliveries, fresh, refused));
        }
        self.work.commit().await?;
        Ok(Committed { covered, deferred })
    }
}

impl Deref for ClaimedWork {
    type Target = UnitOfWork;

    fn deref(&self) -> &UnitOfWork {
        &self.work
    }
}

impl DerefMut for ClaimedWork {
    fn deref_mut(&mut self) -> &mut UnitOfWork {
        &mut self.work
    }
}
