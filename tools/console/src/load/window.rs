//! A closed loop without asking for every order: sagas end roughly in the order in which they began, so every n-th
//! order is looked at in the database, and when it has ended, n places are free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::PgConnection;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{MissedTickBehavior, interval},
};
use uuid::Uuid;

/// How often it is looked whether orders have ended.
const LOOK: Duration = Duration::from_millis(20);
/// How many orders of a full window are looked at.
const PROBES: u32 = 32;

/// Counts what may be placed.
#[derive(Debug)]
pub(super) struct Window {
    free: Arc<Semaphore>,
    every: u32,
    accepted: AtomicU64,
    probes: mpsc::UnboundedSender<Uuid>,
}

impl Window {
    /// A window of so many orders, and what gives places back, which has to run as long as orders are placed.
    pub(super) fn of(
        in_flight: u32,
        connection: PgConnection,
    ) -> (Arc<Self>, impl Future<Output = Result<(), sqlx::Error>> + Send) {
        let (probes, to_watch) = mpsc::unbounded_channel();
        let every = (in_flight / PROBES).max(1);
        let free = Arc::new(Semaphore::new(in_flight as usize));
        let window = Window { free: Arc::clone(&free), every, accepted: AtomicU64::new(0), probes };
        (Arc::new(window), give_back(connection, to_watch, free, every as usize))
    }

    pub(super) fn free(&self) -> Arc<Semaphore> {
        Arc::clone(&self.free)
    }

    /// An order was placed, and will end some time.
    pub(super) fn accepted(&self, order_id: Uuid) {
        if self.accepted.fetch_add(1, Ordering::Relaxed).is_multiple_of(u64::from(self.every)) {
            // The receiver is gone when nothing more is to be placed.
            let _ = self.probes.send(order_id);
        }
    }

    /// No order came of it.
    pub(super) fn refused(&self) {
        self.free.add_permits(1);
    }
}

async fn give_back(
    mut connection: PgConnection,
    mut to_watch: mpsc::UnboundedReceiver<Uuid>,
    free: Arc<Semaphore>,
    every: usize,
) -> Result<(), sqlx::Error> {
    let mut watched: Vec<Uuid> = Vec::new();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while let Ok(order_id) = to_watch.try_recv() {
            watched.push(order_id);
        }
        let ended: Vec<Uuid> = sqlx::query_scalar(
            "select business_key
            from saga.saga_instance
            where business_key = any($1) and status in ('COMPLETED', 'COMPENSATED', 'FAILED')",
        )
        .bind(&watched)
        .fetch_all(&mut connection)
        .await?;
        watched.retain(|order_id| !ended.contains(order_id));
        free.add_permits(every * ended.len());
    }
}
