//! The bounds of the model, and the guards of the suite that are in effect.

/// The size of the world, and the number of faults. Every repeatable action is bounded here, so that every run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Orders of one unit each, all of the same product.
    pub orders: usize,
    /// Units that were supplied.
    pub stock: i8,
    /// Faults of any kind in one run: crashes, losses, duplicates, late requests.
    pub faults: u8,
    /// Retries of a compensation, in addition to one for each fault.
    pub retries: u8,
    /// Attempts after which order gives up, until an operator resumes.
    pub max_attempts: u16,
    /// Replicas of payment that may work on one delivery.
    pub replicas: usize,
    /// Detectors of timeouts, two at most.
    pub detectors: usize,
    /// Whether customers may cancel.
    pub cancels: bool,
    /// Whether cards may be declined.
    pub bad_cards: bool,
}

impl Bounds {
    /// One order without faults.
    pub const CALM: Bounds = Bounds {
        orders: 1,
        stock: 1,
        faults: 0,
        retries: 1,
        max_attempts: 0,
        replicas: 1,
        detectors: 2,
        cancels: true,
        bad_cards: true,
    };

    /// The same with one fault, at every place.
    pub const FAULT: Bounds = Bounds { faults: 1, ..Self::CALM };

    /// Two faults.
    pub const FAULTS: Bounds = Bounds { faults: 2, retries: 0, ..Self::CALM };

    /// The same with one detector, and a compensation that may be retried.
    pub const FAULTS_AND_RETRY: Bounds = Bounds { faults: 2, detectors: 1, ..Self::CALM };

    /// Three faults, with one detector.
    pub const MORE_FAULTS: Bounds = Bounds { faults: 3, detectors: 1, ..Self::FAULTS };

    /// Two replicas of payment, and a fault that makes them work on the same delivery.
    pub const REPLICAS: Bounds = Bounds { replicas: 2, retries: 0, ..Self::FAULT };

    /// Two orders compete for one unit.
    pub const RACE: Bounds = Bounds { orders: 2, retries: 0, detectors: 0, ..Self::CALM };

    /// The same under a deadline, and without cancellations by customers.
    pub const LATE_RACE: Bounds = Bounds { detectors: 1, cancels: false, bad_cards: false, ..Self::RACE };

    /// Bounds that a debug build explores in seconds.
    pub const QUICK: &[Bounds] = &[Self::CALM, Self::RACE, Self::REPLICAS];

    /// Bounds that a release build explores in a minute.
    pub const FULL: &[Bounds] = &[
        Self::CALM,
        Self::RACE,
        Self::LATE_RACE,
        Self::REPLICAS,
        Self::FAULT,
        Self::FAULTS,
        Self::FAULTS_AND_RETRY,
        Self::MORE_FAULTS,
    ];
}

impl Bounds {
    /// From the numbers of orders, units, faults, drives (retries), replicas and detectors.
    pub fn of(numbers: &[u8]) -> Option<Bounds> {
        let [orders, stock, faults, retries, replicas, detectors @ 0..=2] = *numbers else { return None };
        let stock = i8::try_from(stock).ok()?;
        let (orders, replicas, detectors) = (orders.into(), replicas.into(), detectors.into());
        Some(Bounds { orders, stock, faults, retries, replicas, detectors, ..Self::CALM })
    }
}

/// The guards of the suite; tests remove one each and expect the checker to find a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// A consumer claims each event once.
    pub inbox: bool,
    /// A cancellation writes a tombstone where there is no row.
    pub tombstones: bool,
    /// The detector reads the status again under the lock.
    pub timeout_is_conditional: bool,
    /// A saga is COMPENSATED by its participants' undo confirmations, and not because its cancellation was published.
    pub undo_confirmations: bool,
    /// Stock is read under the lock under which it is written.
    pub stock_is_locked: bool,
    /// No attempt of a compensation is counted while its cancellation is in flight.
    pub retries_wait: bool,
}

impl Guards {
    /// As in production.
    pub const ALL: Guards = Guards {
        inbox: true,
        tombstones: true,
        timeout_is_conditional: true,
        undo_confirmations: true,
        stock_is_locked: true,
        retries_wait: true,
    };
}
