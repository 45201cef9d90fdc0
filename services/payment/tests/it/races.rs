//! `process_payment` and `refund_payment` at the same time, and crashes between their phases.

use std::time::Duration;

use contracts::order_fulfillment::StockReserved;
use messaging::{Committed, Delivery, StepError};
use tokio::time::timeout;

use crate::{
    lab::{Lab, Order, PRICE},
    scripted_gateway::CallFault,
};

/// No money is held, row and ledger agree, and the receipt is published.
async fn assert_undone(lab: &Lab, order: &Order, status: &str, refunded: i64) {
    assert_eq!((lab.payment(order).await.as_str(), lab.refunded(order).await), (status, Some(refunded)));
    assert_eq!(lab.gateway.charged_and_held(), (refunded, 0));
    assert!(!lab.published(order).await.iter().any(|event| event.starts_with("PaymentProcessed")));
    assert_eq!(lab.saga(order).await, "COMPENSATING", "inventory's receipt is still due");
}

/// Charges, and runs `meanwhile` before the gateway answers.
async fn charge_while<T>(
    lab: &Lab,
    reserved: &Delivery<StockReserved>,
    meanwhile: impl AsyncFnOnce() -> T,
) -> (Result<Committed, StepError>, T) {
    let batch = [reserved];
    let held = async {
        lab.gateway.called(1).await;
        let result = meanwhile().await;
        lab.gateway.release();
        result
    };
    tokio::join!(lab.charge(&batch), held)
}

#[tokio::test]
async fn a_void_that_overtakes_the_charge_fences_it() {
    let (lab, order) = Lab::with_order("tok_held").await;
    let cancel = async || lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    let (charged, _) = charge_while(&lab, &order.reserved(), cancel).await;
    charged.unwrap();
    assert_undone(&lab, &order, "VOIDED", 0).await;
    assert_eq!(lab.journal(&order).await, ["refund_payment COMPENSATED", "process_payment SKIPPED"]);
}

#[tokio::test]
async fn a_charge_recorded_after_the_cancellation_is_refunded() {
    let (lab, order) = Lab::with_order("tok_held").await;
    let (charged, cancelled) = charge_while(&lab, &order.reserved(), async || lab.cancel(&order).await).await;
    charged.unwrap();
    assert_eq!(lab.payment(&order).await, "CAPTURED");
    assert_eq!(lab.journal(&order).await, ["process_payment SKIPPED"]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert_undone(&lab, &order, "REFUNDED", PRICE).await;
}

#[tokio::test]
async fn a_charge_of_a_timed_out_saga_is_recorded_for_its_refund() {
    let (lab, order) = Lab::with_order("tok_held").await;
    let (charged, ()) = charge_while(&lab, &order.reserved(), async || lab.time_out(&order).await).await;
    charged.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.published(&order).await.len()), ("CAPTURED", 0));
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    assert_undone(&lab, &order, "REFUNDED", PRICE).await;
}

#[tokio::test]
async fn a_crash_between_charge_and_record_keeps_no_money() {
    for crash_first in [true, false] {
        let (lab, order) = Lab::with_order("tok_visa").await;
        let event = order.reserved();
        // A lost answer leaves the same state as a crash between charge and record.
        lab.charge_unanswered(&event).await;
        assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.charged_and_held().1), ("PENDING", PRICE));
        let cancelled = lab.cancel(&order).await;
        if crash_first {
            lab.refund(&[&cancelled]).await.unwrap();
            lab.charge(&[&event]).await.unwrap();
        } else {
            lab.charge(&[&event]).await.unwrap();
            lab.refund(&[&cancelled]).await.unwrap();
        }
        assert_undone(&lab, &order, "REFUNDED", PRICE).await;
        assert!(lab.is_processed(event.meta.event_id).await);
    }
}

#[tokio::test]
async fn a_crash_between_cancellation_and_void_is_recovered() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    let event = order.reserved();
    lab.charge_unanswered(&event).await;
    let cancelled = lab.cancel(&order).await;
    lab.gateway.next(&[CallFault::Unreachable]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert!(!lab.is_processed(cancelled.meta.event_id).await);
    // The redelivered charge finds the cancellation, and voids instead.
    lab.charge(&[&event]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.charged_and_held()), ("REFUNDED", (PRICE, 0)));
    lab.refund(&[&cancelled]).await.unwrap();
    assert_undone(&lab, &order, "REFUNDED", PRICE).await;
}

#[tokio::test]
async fn a_charge_under_a_voided_key_is_refunded() {
    let (lab, order) = Lab::with_order("tok_held").await;
    let event = order.reserved();
    let cancel = async || {
        lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
        lab.gateway.next(&[CallFault::Forgetful]);
    };
    assert!(charge_while(&lab, &event, cancel).await.0.is_err());
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.charged_and_held().1), ("VOIDED", PRICE));
    lab.charge(&[&event]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.charged_and_held()), ("REFUNDED", (PRICE, 0)));
}

#[tokio::test]
async fn a_capture_missing_in_a_restored_database_is_found() {
    for cancel in [false, true] {
        let (lab, order) = Lab::with_order("tok_visa").await;
        let event = order.reserved();
        lab.charge_unanswered(&event).await;
        lab.forget_payments().await;
        if cancel {
            lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
            lab.charge(&[&event]).await.unwrap();
            assert_undone(&lab, &order, "REFUNDED", PRICE).await;
        } else {
            lab.charge(&[&event]).await.unwrap();
            assert_eq!(
                (lab.payment(&order).await.as_str(), lab.gateway.charged_and_held()),
                ("CAPTURED", (PRICE, PRICE))
            );
        }
    }
}

#[tokio::test]
async fn a_payment_of_an_earlier_build_keeps_its_id() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    let event = order.reserved();
    lab.gateway.next(&[CallFault::Unreachable]);
    lab.charge(&[&event]).await.unwrap();
    let before = lab.assign_random_payment_id(&order).await;
    lab.charge(&[&event]).await.unwrap();
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    assert_eq!((lab.payment_id(&order).await, lab.payment(&order).await.as_str()), (before, "REFUNDED"));
    assert_eq!(lab.gateway.charged_and_held(), (PRICE, 0));
}

/// Many orders, charged and cancelled at once in overlapping batches by two replicas of each step.
#[tokio::test]
async fn overlapping_batches_neither_deadlock_nor_keep_money() {
    let lab = Lab::start().await;
    let mut orders = Vec::new();
    for _ in 0..30 {
        orders.push(lab.order("tok_visa").await);
    }
    let reserved: Vec<_> = orders.iter().map(Order::reserved).collect();
    let (there, back): (Vec<_>, Vec<_>) = (reserved.iter().collect(), reserved.iter().rev().collect());
    let undo = async {
        let mut cancelled = Vec::new();
        for order in &orders {
            cancelled.push(lab.cancel(order).await);
        }
        let (there, back): (Vec<_>, Vec<_>) = (cancelled.iter().collect(), cancelled.iter().rev().collect());
        let (a, b) = tokio::join!(lab.refund(&there), lab.refund(&back));
        a.and(b).unwrap();
    };
    let all = async {
        let (a, b, ()) = tokio::join!(lab.charge(&there), lab.charge(&back), undo);
        a.and(b).unwrap();
    };
    Box::pin(timeout(Duration::from_secs(20), all)).await.unwrap();
    assert_eq!(lab.gateway.charged_and_held().1, 0);
    for order in &orders {
        assert!(["VOIDED", "REFUNDED"].contains(&lab.payment(order).await.as_str()));
        let published = lab.published(order).await;
        assert_eq!(published.iter().filter(|event| event.starts_with("PaymentRefunded")).count(), 1, "{published:?}");
        assert_eq!(lab.journal(order).await.len(), 2);
    }
}
