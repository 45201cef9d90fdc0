//! The window of a closed loop. Sagas end roughly in the order in which they began, so only every n-th order is looked up in the
//! database; when it has ended, n places are free.

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

/// How often the sampled orders are looked up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How many orders of a full window are looked up.
const SAMPLES: u32 = 32;

/// The permits to place an order.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) free: Arc<Semaphore>,
    every: u32,
    accepted: AtomicU64,
    samples: mpsc::UnboundedSender<Uuid>,
}

impl Window {
    /// A window of so many orders, and the task that releases permits, which must run as long as orders are placed.
    pub(super) fn of(
        in_flight: u32,
        connection: PgConnection,
    ) -> (Arc<Self>, impl Future<Output = sqlx::Result<()>> + Send) {
        let (samples, to_watch) = mpsc::unbounded_channel();
        let every = (in_flight / SAMPLES).max(1);
        let free = Arc::new(Semaphore::new(in_flight as usize));
        let window = Window { free: Arc::clone(&free), every, accepted: AtomicU64::new(0), samples };
        (Arc::new(window), release_permits(connection, to_watch, free, every as usize))
    }

    pub(super) fn accepted(&self, order_id: Uuid) {
        if self.accepted.fetch_add(1, Ordering::Relaxed).is_multiple_of(u64::from(self.every)) {
            // The receiver is gone when no more orders are placed.
            let _ = self.samples.send(order_id);
        }
    }

    pub(super) fn refused(&self) {
        self.free.add_permits(1);
    }
}

async fn release_permits(
    mut connection: PgConnection,
    mut to_watch: mpsc::UnboundedReceiver<Uuid>,
    free: Arc<Semaphore>,
    every: usize,
) -> sqlx::Result<()> {
    let mut watched: Vec<Uuid> = Vec::new();
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while let Ok(order_id) = to_watch.try_recv() {
            watched.push(order_id);
        }
        let query = sqlx::query_scalar(
            "select business_key
            from saga.saga_instance
            where business_key = any($1) and status in ('COMPLETED', 'COMPENSATED', 'FAILED')",
        );
        let ended: Vec<Uuid> = query.bind(&watched).fetch_all(&mut connection).await?;
        watched.retain(|order_id| !ended.contains(order_id));
        free.add_permits(every * ended.len());
    }
}
