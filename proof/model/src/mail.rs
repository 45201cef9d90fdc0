//! Events in flight: from an outbox over a stream to the steps that read them. The readers come from the saga's table. Events of
//! one stream may overtake each other here: the model assumes no order.

use std::sync::LazyLock;

use contracts::{
    INVENTORY, ORDER, PAYMENT,
    order_fulfillment::{
        OrderCancelled, OrderCreated, PaymentFailed, PaymentProcessed, SAGA, SagaTimedOut, StockReservationFailed,
        StockReserved,
    },
};
use saga::{Event, EventType, Service, Step};

/// The events that have a reader. Others are only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    OrderCreated,
    StockReserved,
    StockReservationFailed,
    PaymentProcessed,
    PaymentFailed,
    SagaTimedOut,
    OrderCancelled,
}

/// The steps that events trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reader {
    ReserveStock,
    ProcessPayment,
    ConfirmOrder,
    CancelUnfillableOrder,
    CancelUnpaidOrder,
    CancelTimedOutOrder,
    ReleaseStock,
    RefundPayment,
}

impl Kind {
    /// In the order of the variants, with the event's type in the contract.
    pub const ALL: [(Kind, EventType); 7] = [
        (Kind::OrderCreated, OrderCreated::TYPE),
        (Kind::StockReserved, StockReserved::TYPE),
        (Kind::StockReservationFailed, StockReservationFailed::TYPE),
        (Kind::PaymentProcessed, PaymentProcessed::TYPE),
        (Kind::PaymentFailed, PaymentFailed::TYPE),
        (Kind::SagaTimedOut, SagaTimedOut::TYPE),
        (Kind::OrderCancelled, OrderCancelled::TYPE),
    ];

    /// The event's type in the contract.
    pub const fn event_type(self) -> EventType {
        Self::ALL[self as usize].1
    }

    /// Its readers, by the saga's table.
    pub fn readers(self) -> &'static [Reader] {
        &READERS[self as usize]
    }
}

impl Reader {
    /// In the order of the variants, with the step's name and service.
    const ALL: [(Reader, &'static str, Service); 8] = [
        (Reader::ReserveStock, "reserve_stock", INVENTORY),
        (Reader::ProcessPayment, "process_payment", PAYMENT),
        (Reader::ConfirmOrder, "confirm_order", ORDER),
        (Reader::CancelUnfillableOrder, "cancel_unfillable_order", ORDER),
        (Reader::CancelUnpaidOrder, "cancel_unpaid_order", ORDER),
        (Reader::CancelTimedOutOrder, "cancel_timed_out_order", ORDER),
        (Reader::ReleaseStock, "release_stock", INVENTORY),
        (Reader::RefundPayment, "refund_payment", PAYMENT),
    ];

    /// The reader that takes this step.
    pub fn of(step: &Step) -> Option<Reader> {
        Self::ALL.iter().find(|(_, name, _)| *name == step.name).map(|(reader, ..)| *reader)
    }

    /// The service of the step.
    pub fn service(self) -> Service {
        Self::ALL[self as usize].2
    }
}

// Both tables are indexed by variant.
const _: () = {
    let mut at = 0;
    while at < Reader::ALL.len() {
        assert!(Reader::ALL[at].0 as usize == at && (at >= Kind::ALL.len() || Kind::ALL[at].0 as usize == at));
        at += 1;
    }
};

static READERS: LazyLock<[Vec<Reader>; 7]> = LazyLock::new(|| {
    Kind::ALL.map(|(_, event)| {
        let reads = |step: &&&Step| step.consumes() == Some(event);
        SAGA.steps.iter().filter(reads).filter_map(|step| Reader::of(step)).collect()
    })
});

/// An event of an order: its kind, and the number of earlier events of that kind.
pub type Id = (Kind, u8);

/// One event, from its commit on; kept for ever, because old events may be delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    pub id: Id,
    /// Committed, and not yet marked as published.
    pub in_outbox: bool,
    /// Copies that each reader has not acknowledged.
    pub copies: [u8; 2],
    /// How often each reader has applied it: the inbox, and the evidence of duplicates.
    pub applied: [u8; 2],
}

impl Message {
    /// The effect of the relay: every reader's consumer gets a copy.
    pub fn reaches_stream(&mut self) {
        for copies in self.copies.iter_mut().take(self.id.0.readers().len()) {
            *copies += 1;
        }
    }

    pub fn reader(&self, place: usize) -> Reader {
        self.id.0.readers()[place]
    }

    /// No copy is left to deliver.
    pub fn is_done(&self) -> bool {
        !self.in_outbox && self.copies == [0; 2]
    }
}
