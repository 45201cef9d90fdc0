//! What happened in this process and is to be known later: changes of breakers, and faults that hit.

#[cfg(feature = "faults")]
use std::{sync::Arc, time::Duration};

use messaging::breaker_change;
use resilience::Change;
use sqlx::PgPool;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Logs every change of every breaker, and writes it down.
pub(crate) async fn write_breaker_changes(
    mut changes: Receiver<Change>,
    pool: PgPool,
    replica: String,
    stop: CancellationToken,
) {
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = stop.cancelled() => return,
        };
        match change {
            Ok(Change { step, from, to, why }) => {
                tracing::warn!(step, %from, %to, why, "the step's circuit breaker has changed");
                let written = breaker_change::write(&pool, &replica, step, from.label(), to.label(), &why).await;
                if let Err(error) = written {
                    tracing::warn!(step, %error, "the breaker's change is in the log only");
                }
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes of breakers were not written down"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// How long a fault waits until its hit is written down, before it acts all the same.
#[cfg(feature = "faults")]
const HIT_LIMIT: Duration = Duration::from_secs(1);

/// Has every hit written down before the fault acts.
#[cfg(feature = "faults")]
pub(crate) fn write_hits(faults: &faults::Faults, pool: PgPool, service: saga::Service) {
    faults.on_hit(Arc::new(move |hit| {
        let pool = pool.clone();
        Box::pin(async move {
            let row = saga_store::fault_hit::FaultHit {
                saga_id: hit.subject.saga_id,
                service,
                step: hit.subject.step,
                fault_id: hit.fault_id,
                point: hit.point.as_str(),
                kind: hit.kind.as_str(),
            };
            match tokio::time::timeout(HIT_LIMIT, saga_store::fault_hit::write(&pool, &row)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(?row, %error, "the hit is in the log only"),
                Err(_) => tracing::warn!(?row, "the hit is in the log only: the database takes too long"),
            }
        })
    }));
}
