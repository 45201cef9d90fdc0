//! How far the model goes, and which of the suite's guards are up.

/// The size of the world, and how much may go wrong in it. Everything that may happen without limit has one here, so
/// that every run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Orders of one unit each, all of the same product.
    pub orders: usize,
    /// Units that were supplied.
    pub stock: i8,
    /// Faults of any kind in one run: crashes, losses, duplicates, late requests.
    pub faults: u8,
    /// How often a compensation may be driven again besides once for each fault.
    pub drives: u8,
    /// Drives after which order gives up, until an operator resumes.
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
    /// One order of which everything may be said, and nothing goes wrong.
    pub const CALM: Bounds = Bounds {
        orders: 1,
        stock: 1,
        faults: 0,
        drives: 1,
        max_attempts: 0,
        replicas: 1,
        detectors: 2,
        cancels: true,
        bad_cards: true,
    };

    /// The same, and one fault, at every place.
    pub const FAULT: Bounds = Bounds { faults: 1, ..Self::CALM };

    /// Two faults, one upon the other.
    pub const FAULTS: Bounds = Bounds { faults: 2, drives: 0, ..Self::CALM };

    /// The same with one detector, and a compensation that may have to be driven again.
    pub const FAULTS_AND_DRIVE: Bounds = Bounds { faults: 2, detectors: 1, ..Self::CALM };

    /// Three of them, with one detector.
    pub const MORE_FAULTS: Bounds = Bounds { faults: 3, detectors: 1, ..Self::FAULTS };

    /// Two replicas of payment, and a fault that makes them work on the same delivery.
    pub const REPLICAS: Bounds = Bounds { replicas: 2, drives: 0, ..Self::FAULT };

    /// Two orders race for one unit.
    pub const RACE: Bounds = Bounds { orders: 2, drives: 0, detectors: 0, ..Self::CALM };

    /// The same under a deadline, and nobody changes their mind.
    pub const LATE_RACE: Bounds = Bounds { detectors: 1, cancels: false, bad_cards: false, ..Self::RACE };

    /// What a debug build walks through in seconds.
    pub const QUICK: &[Bounds] = &[Self::CALM, Self::RACE, Self::REPLICAS];

    /// What a release build walks through in a minute.
    pub const FULL: &[Bounds] = &[
        Self::CALM,
        Self::RACE,
        Self::LATE_RACE,
        Self::REPLICAS,
        Self::FAULT,
        Self::FAULTS,
        Self::FAULTS_AND_DRIVE,
        Self::MORE_FAULTS,
    ];
}

impl Bounds {
    /// Orders, units, faults, drives, replicas and detectors.
    pub fn of(numbers: &[u8]) -> Option<Bounds> {
        let [orders, stock, faults, drives, replicas, detectors @ 0..=2] = *numbers else { return None };
        let stock = i8::try_from(stock).ok()?;
        let (orders, replicas, detectors) = (orders.into(), replicas.into(), detectors.into());
        Some(Bounds { orders, stock, faults, drives, replicas, detectors, ..Self::CALM })
    }
}

/// The guards of the suite; a test takes one away to see that the checker notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// A consumer claims each event once.
    pub inbox: bool,
    /// A cancellation leaves a row behind where there was none.
    pub tombstones: bool,
    /// The detector looks at the status again once it has the lock.
    pub timeout_is_conditional: bool,
    /// A saga is COMPENSATED by its participants' receipts, and not because its cancellation was published.
    pub receipts: bool,
    /// Stock is read under the lock under which it is written.
    pub stock_is_locked: bool,
    /// No attempt of a compensation is counted while its cancellation is under way.
    pub attempts_wait: bool,
}

impl Guards {
    /// As in production.
    pub const ALL: Guards = Guards {
        inbox: true,
        tombstones: true,
        timeout_is_conditional: true,
        receipts: true,
        stock_is_locked: true,
        attempts_wait: true,
    };
}
