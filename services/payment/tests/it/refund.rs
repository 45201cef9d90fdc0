//! `refund_payment`: no money is held afterwards, and the receipt is always published.

use crate::{
    lab::{Lab, PRICE},
    scripted_gateway::CallFault,
};

#[tokio::test]
async fn a_captured_charge_is_refunded() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    let cancelled = lab.cancel(&order).await;
    for _ in 0..3 {
        lab.refund(&[&cancelled]).await.unwrap();
    }
    assert_eq!(lab.payment(&order).await, "REFUNDED");
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1", "PaymentRefunded 2"]);
    assert_eq!((lab.refunded(&order).await, lab.gateway.charged_and_held()), (Some(PRICE), (PRICE, 0)));
    assert_eq!(lab.journal(&order).await, ["process_payment COMPLETED", "refund_payment COMPENSATED"]);
}

#[tokio::test]
async fn a_declined_payment_has_a_receipt_of_zero() {
    let (lab, order) = Lab::with_order("tok_declined").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("DECLINED", Some(0)));
    assert_eq!(lab.gateway.calls(), 1);
}

#[tokio::test]
async fn a_cancellation_before_its_order_leaves_a_tombstone() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    lab.charge(&[&order.reserved()]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.charged_and_held()), ("VOIDED", (0, 0)));
    assert_eq!(lab.gateway.calls(), 1, "the void");
    assert_eq!(lab.published(&order).await, ["PaymentRefunded 1"]);
    assert_eq!(lab.journal(&order).await, ["refund_payment COMPENSATED", "process_payment SKIPPED"]);
}

#[tokio::test]
async fn a_repeated_cancellation_has_two_receipts_and_one_refund() {
    let lab = Lab::start().await;
    let (order, unpaid) = (lab.order("tok_visa").await, lab.order("tok_visa").await);
    lab.charge(&[&order.reserved()]).await.unwrap();
    let first = lab.cancel(&order).await;
    let batch = [&first, &order.cancelled(), &lab.cancel(&unpaid).await, &unpaid.cancelled(), &first];
    lab.refund(&batch).await.unwrap();
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1", "PaymentRefunded 2", "PaymentRefunded 3"]);
    assert_eq!((lab.refunded(&order).await, lab.gateway.charged_and_held()), (Some(PRICE), (PRICE, 0)));
    assert_eq!(lab.published(&unpaid).await, ["PaymentRefunded 1", "PaymentRefunded 2"]);
    assert_eq!(lab.refunded(&unpaid).await, Some(0));
    lab.refund(&[&order.cancelled()]).await.unwrap();
    assert_eq!((lab.published(&order).await.len(), lab.refunded(&order).await), (4, Some(PRICE)));
}

#[tokio::test]
async fn a_refund_without_an_answer_is_retried() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    let cancelled = lab.cancel(&order).await;
    lab.gateway.next(&[CallFault::Unreachable]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("CAPTURED", None));
    lab.gateway.next(&[CallFault::AnswerLost, CallFault::RequestLost]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("REFUNDED", Some(PRICE)));
    assert_eq!(lab.gateway.charged_and_held(), (PRICE, 0));
}
