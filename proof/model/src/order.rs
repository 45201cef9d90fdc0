//! Order's steps, as in `services/order/src/steps.rs` and `compensation.rs`: every decision is made by `order::domain` under the
//! locks of saga and order, so each step is one transaction and one action here.

use contracts::order_fulfillment::{CANCEL_ORDER_ON_REQUEST, CONFIRM_ORDER, DETECT_TIMEOUT, DRIVE_COMPENSATION};
use order::domain::{self, CancelRequest, Ending, OrderStatus, OverdueAction};
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
            self.history.confirmed += 1;
        }
    }

    /// After a refusal or a timeout.
    pub(crate) fn cancel_for(&mut self, step: &Step, guards: &Guards) {
        if domain::cancel(self.order, Some(self.saga.status)) == Ending::Apply {
            self.cancel_order(step, false, guards);
        }
    }

    pub(crate) fn may_cancel_on_request(&self) -> bool {
        let past_pivot = self.saga.past_pivot;
        domain::cancel_on_request(self.order, Some(self.saga.status), past_pivot) == CancelRequest::Apply
    }

    pub(crate) fn cancel_on_request(&mut self, guards: &Guards) {
        self.history.by_customer = true;
        self.cancel_order(&CANCEL_ORDER_ON_REQUEST, true, guards);
    }

    fn cancel_order(&mut self, step: &Step, by_customer: bool, guards: &Guards) {
        self.publish(step, Kind::OrderCancelled);
        self.record(Transition::Compensate { by_customer });
        self.order = OrderStatus::Cancelled;
        self.history.cancelled += 1;
        if !guards.undo_confirmations {
            self.saga.receipts_due.clear();
            self.saga.status = Status::Compensated;
        }
    }

    /// A detector's statement finds the saga due, as of its snapshot.
    pub(crate) fn find_due(&mut self) {
        self.detectors[0] = Detector::Found;
        self.detectors.sort_unstable();
    }

    /// The detector gets the row's lock. PostgreSQL then evaluates `where status in ('STARTED', 'IN_PROGRESS')` again on the
    /// row's newest version, so the detector sees the winner of the race.
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
    pub(crate) fn retry_compensation(&mut self, bounds: &Bounds, guards: &Guards) {
        let under_way = self.cancellation_in_flight();
        let known = under_way && guards.retries_wait;
        let what =
            domain::overdue_action(Some(self.saga.status), known, self.attempts.unsigned_abs(), bounds.max_attempts);
        self.history.retried_too_early |= under_way && what != OverdueAction::Cancel;
        match what {
            OverdueAction::Wait => {}
            OverdueAction::Cancel => match domain::cancel(self.order, Some(self.saga.status)) {
                Ending::Apply => self.cancel_order(&DRIVE_COMPENSATION, false, guards),
                Ending::Skip(_) => {}
            },
            OverdueAction::Retry => self.retry(Transition::RetryCompensation),
            OverdueAction::GiveUp => {
                self.record(Transition::GiveUp);
                self.history.given_up = true;
            }
        }
    }

    /// An operator resumes a saga that was given up.
    pub(crate) fn resume(&mut self) {
        if domain::may_resume(self.saga.status) {
            self.history.resumed = true;
            self.retry(Transition::Resume);
        }
    }

    fn retry(&mut self, transition: Transition) {
        self.publish(&DRIVE_COMPENSATION, Kind::OrderCancelled);
        self.record(transition);
        self.retries += 1;
    }
}
