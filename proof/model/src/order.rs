//! Order's steps, as `services/order/src/steps.rs` and `compensation.rs` take them: every decision is one of
//! `order::domain`, made under the locks of saga and order, so each step is one transaction and one action here.

use contracts::order_fulfillment::{CANCEL_ORDER_ON_REQUEST, CONFIRM_ORDER, DETECT_TIMEOUT, DRIVE_COMPENSATION, SAGA};
use order::domain::{self, CancelRequest, Drive, Ending, OrderStatus};
use saga::{Status, Step, Transition};

use crate::{
    Bounds, Guards,
    mail::Kind,
    world::{Detector, Fulfilment},
};

impl Fulfilment {
    /// Step 3.
    pub(crate) fn confirm_order(&mut self) {
        if domain::confirm(self.order, Some(self.saga.status)) == Ending::Apply {
            self.record(Transition::Complete { step: CONFIRM_ORDER.number });
            self.order = OrderStatus::Confirmed;
            self.told.confirmed += 1;
        }
    }

    /// A refusal or a timeout has come.
    pub(crate) fn cancel_for(&mut self, step: &Step, guards: &Guards) {
        if domain::cancel(self.order, Some(self.saga.status)) == Ending::Apply {
            self.cancel_order(step, false, guards);
        }
    }

    pub(crate) fn may_cancel_on_request(&self) -> bool {
        let past_pivot = SAGA.is_past_pivot(&self.saga);
        domain::cancel_on_request(self.order, Some(self.saga.status), past_pivot) == CancelRequest::Apply
    }

    pub(crate) fn cancel_on_request(&mut self, guards: &Guards) {
        self.told.by_customer = true;
        self.cancel_order(&CANCEL_ORDER_ON_REQUEST, true, guards);
    }

    fn cancel_order(&mut self, step: &Step, by_customer: bool, guards: &Guards) {
        self.publish(step, Kind::OrderCancelled);
        self.record(Transition::Compensate { by_customer });
        self.order = OrderStatus::Cancelled;
        self.told.cancelled += 1;
        if !guards.receipts {
            self.saga.receipts_due.clear();
            self.saga.status = Status::Compensated;
        }
    }

    /// A detector's statement finds the saga due, as of its snapshot.
    pub(crate) fn find_due(&mut self) {
        self.detectors[0] = Detector::Found;
        self.detectors.sort_unstable();
    }

    /// It gets the row's lock. PostgreSQL then evaluates `where status in ('STARTED', 'IN_PROGRESS')` again on the
    /// row's newest version, so whatever won the race is seen here.
    pub(crate) fn detect_timeout(&mut self, guards: &Guards) {
        if let Some(found) = self.detectors.iter_mut().find(|d| **d == Detector::Found) {
            *found = Detector::Done;
        }
        self.detectors.sort_unstable();
        if self.moves_forward() {
            self.record(Transition::TimeOut);
            self.publish(&DETECT_TIMEOUT, Kind::SagaTimedOut);
        } else if !guards.timeout_is_conditional {
            self.saga.status = Status::TimedOut;
            self.publish(&DETECT_TIMEOUT, Kind::SagaTimedOut);
        }
    }

    /// The compensation deadline has passed.
    pub(crate) fn drive_compensation(&mut self, bounds: &Bounds, guards: &Guards) {
        let under_way = self.cancellation_under_way();
        let known = under_way && guards.attempts_wait;
        let what = domain::drive(Some(self.saga.status), known, self.attempts.unsigned_abs(), bounds.max_attempts);
        self.told.driven_in_vain |= under_way && what != Drive::Cancel;
        match what {
            Drive::Wait => {}
            Drive::Cancel => match domain::cancel(self.order, Some(self.saga.status)) {
                Ending::Apply => self.cancel_order(&DRIVE_COMPENSATION, false, guards),
                Ending::Skip(_) => {}
            },
            Drive::Again => self.publish_again(Transition::DriveAgain),
            Drive::GiveUp => {
                self.record(Transition::GiveUp);
                self.told.given_up = true;
            }
        }
    }

    /// An operator looks at a saga that is stuck.
    pub(crate) fn resume(&mut self) {
        if domain::may_resume(self.saga.status) {
            self.told.resumed = true;
            self.publish_again(Transition::Resume);
        }
    }

    fn publish_again(&mut self, transition: Transition) {
        self.publish(&DRIVE_COMPENSATION, Kind::OrderCancelled);
        self.record(transition);
        self.drives += 1;
    }
}
