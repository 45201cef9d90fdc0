//! Faults that every replica of this service holds. They are stored in the database, so passes are counted for all replicas
//! together, and a replica that missed the message loads them within a second. Failed writes are retried later.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bootstrap::postgres::within;
use faults::{Armed, FaultSpec, Faults, Kind};
use saga::Service;
use saga_store::{
    armed_fault::{self, NewFault, SharedFault},
    fault_hit::{self, FaultHit},
};
use sqlx::PgPool;
use uuid::Uuid;

/// The time limit of the database for arming, disarming, and counting passes and hits.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct SharedFaults {
    faults: Faults,
    pool: PgPool,
    service: Service,
    unwritten: Arc<Mutex<VecDeque<Change>>>,
    /// Serialises the writes of changes, to keep their order.
    writing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Change {
    Arm(NewFault),
    Disarm(Vec<i64>),
}

impl SharedFaults {
    pub(crate) fn new(faults: Faults, pool: PgPool, service: Service) -> Self {
        count_passes(&faults, pool.clone(), service);
        write_hits(&faults, pool.clone(), service);
        SharedFaults { faults, pool, service, unwritten: Arc::default(), writing: Arc::default() }
    }

    /// Arms a fault in this replica, and stores it for the others.
    pub(crate) async fn arm(&self, armed: &Armed) {
        let fault = NewFault {
            service: self.service,
            fault_id: row_id(armed.id),
            annotation_id: Uuid::now_v7(),
            title: title(&armed.spec),
            spec: serde_json::to_value(&armed.spec).unwrap_or_default(),
            armed_by: armed.armed_by.clone(),
            lasts: armed.lasts(),
        };
        // Before it can hit a pass, so that every pass is counted.
        self.write(Change::Arm(fault)).await;
        self.faults.hold(armed, armed.lasts());
    }

    /// Disarms a fault of this replica. If it is not stored yet, it never will be.
    pub(crate) fn disarm_here(&self, id: u64) -> bool {
        self.unwritten().retain(|change| !matches!(change, Change::Arm(fault) if fault.fault_id == row_id(id)));
        self.faults.disarm(id)
    }

    /// Stores that these faults are disarmed.
    pub(crate) async fn disarm(&self, ids: impl Iterator<Item = u64>) {
        self.write(Change::Disarm(ids.map(row_id).collect())).await;
    }

    /// The counts of these faults in all replicas; `None` when the database cannot be read.
    pub(crate) async fn load(&self, ids: impl Iterator<Item = u64>) -> Option<Vec<SharedFault>> {
        let ids: Vec<i64> = ids.map(row_id).collect();
        within(LIMIT, armed_fault::load(&self.pool, self.service, &ids)).await.ok()
    }

    /// Retries failed writes, and loads what other replicas have armed, disarmed or counted meanwhile.
    pub(crate) async fn catch_up(&self) -> Result<(), sqlx::Error> {
        if !self.faults.is_armable() {
            return Ok(());
        }
        self.flush().await?;
        let held: Vec<i64> = self.faults.armed().iter().filter(|armed| armed.shared).map(|a| row_id(a.id)).collect();
        for fault in armed_fault::load(&self.pool, self.service, &held).await? {
            self.take_over(fault);
        }
        Ok(())
    }

    fn take_over(&self, fault: SharedFault) {
        let (id, passes) = (fault.fault_id.unsigned_abs(), fault.passes.unsigned_abs());
        if fault.disarmed {
            self.faults.disarm(id);
            return;
        }
        if fault.seconds_left > 0.0 {
            match serde_json::from_value::<FaultSpec>(fault.spec) {
                Ok(spec) => {
                    let SharedFault { armed_by, armed_at, .. } = fault;
                    let expires_at = armed_at + Duration::from_secs_f64(fault.seconds_left);
                    let armed = Armed { id, spec, armed_by, armed_at, expires_at, shared: true, passes, hits: 0 };
                    self.faults.hold(&armed, Duration::from_secs_f64(fault.seconds_left));
                }
                Err(error) => tracing::debug!(id, %error, "a fault unknown to this build is not armed"),
            }
        }
        self.faults.seen(id, passes);
    }

    async fn write(&self, change: Change) {
        self.unwritten().push_back(change);
        if let Err(error) = within(LIMIT, self.flush()).await {
            tracing::warn!(%error, "faults could not be stored and will be retried; each replica counts separately");
        }
    }

    async fn flush(&self) -> Result<(), sqlx::Error> {
        let _turn = self.writing.lock().await;
        loop {
            let next = self.unwritten().front().cloned();
            match &next {
                None => return Ok(()),
                Some(Change::Arm(fault)) => armed_fault::arm(&self.pool, fault).await?,
                Some(Change::Disarm(ids)) => armed_fault::disarm(&self.pool, self.service, ids).await?,
            }
            self.unwritten().pop_front_if(|first| Some(&*first) == next.as_ref());
        }
    }

    fn unwritten(&self) -> MutexGuard<'_, VecDeque<Change>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the passes of shared faults in the database, for all replicas together.
fn count_passes(faults: &Faults, pool: PgPool, service: Service) {
    faults.count_with(Arc::new(move |armed| {
        let pool = pool.clone();
        Box::pin(async move {
            // The annotation of a fault that delays passes lasts until the fault expires.
            let lasting = matches!(armed.spec.kind, Kind::Latency | Kind::Hang);
            let last = armed.spec.last_pass().filter(|_| !lasting).map(row_id);
            let next = armed_fault::next_pass(&pool, service, row_id(armed.id), last);
            match within(LIMIT, next).await {
                Ok(number) => number.map(i64::unsigned_abs),
                Err(error) => {
                    tracing::warn!(fault = armed.id, %error, "the pass is counted in this replica only");
                    None
                }
            }
        })
    }));
}

/// Stores every hit before the fault acts.
fn write_hits(faults: &Faults, pool: PgPool, service: Service) {
    faults.on_hit(Arc::new(move |hit| {
        let pool = pool.clone();
        Box::pin(async move {
            let row = FaultHit {
                saga_id: hit.subject.saga_id,
                service,
                step: hit.subject.step,
                fault_id: hit.fault_id,
                point: hit.point.as_str(),
                kind: hit.kind.as_str(),
            };
            if let Err(error) = within(LIMIT, fault_hit::write(&pool, &row)).await {
                tracing::warn!(?row, %error, "the hit could not be stored");
            }
        })
    }));
}

/// The name of a fault on dashboards: `reserve_stock: error at in_step`.
fn title(spec: &FaultSpec) -> String {
    let what = format!("{} at {}", spec.kind.as_str(), spec.point.as_str());
    match &spec.scope.step {
        Some(step) => format!("{step}: {what}").chars().take(200).collect(),
        None => what,
    }
}

/// Converts numbers of faults and passes, which fit.
fn row_id(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
