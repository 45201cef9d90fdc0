//! The causes of steps: each step transaction answers every one of its causes.

use messaging::{Context, Delivery};
use uuid::Uuid;

use crate::{instance::Sagas, timeout::DueSaga};

/// What triggers a step for one saga: a delivered event, a request, a deadline.
pub trait Cause {
    /// Identifies the cause within its transaction.
    fn id(&self) -> Uuid;

    /// Its saga, if it has one.
    fn saga_id(&self) -> Option<Uuid>;

    /// The context of the answer.
    fn context(&self, sagas: &Sagas) -> Context;
}

impl<E> Cause for Delivery<E> {
    fn id(&self) -> Uuid {
        self.meta.event_id
    }

    fn saga_id(&self) -> Option<Uuid> {
        self.meta.saga_id()
    }

    fn context(&self, _: &Sagas) -> Context {
        self.meta.context()
    }
}

/// A client's request that concerns a saga.
#[derive(Debug, Clone)]
pub struct Request {
    pub saga_id: Uuid,
    /// The context of the request, outside any saga.
    pub context: Context,
}

impl Cause for Request {
    fn id(&self) -> Uuid {
        self.saga_id
    }

    fn saga_id(&self) -> Option<Uuid> {
        Some(self.saga_id)
    }

    fn context(&self, sagas: &Sagas) -> Context {
        let context = self.context.clone().in_saga(self.saga_id, sagas.definition().saga_type);
        context.with_baggage(sagas.baggage(self.saga_id))
    }
}

impl Cause for DueSaga {
    fn id(&self) -> Uuid {
        self.saga_id
    }

    fn saga_id(&self) -> Option<Uuid> {
        Some(self.saga_id)
    }

    fn context(&self, sagas: &Sagas) -> Context {
        DueSaga::context(self, sagas.definition())
    }
}
