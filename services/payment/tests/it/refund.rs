//! `refund_payment`: nothing is kept, and there is always a receipt.

use crate::{
    lab::{Lab, PRICE},
    scripted_gateway::Twist,
};

#[tokio::test]
async fn a_captured_charge_is_given_back() {
    let lab = Lab::start().await;
    let order = lab.order("tok_visa").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    let cancelled = lab.cancel(&order).await;
    for _ in 0..3 {
        lab.refund(&[&cancelled]).await.unwrap();
    }
    assert_eq!(lab.payment(&order).await, "REFUNDED");
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1", "PaymentRefunded 2"]);
    assert_eq!((lab.refunded(&order).await, lab.gateway.taken_and_kept()), (Some(PRICE), (PRICE, 0)));
    assert_eq!(lab.journal(&order).await, ["process_payment COMPLETED", "refund_payment COMPENSATED"]);
}

#[tokio::test]
async fn a_declined_payment_has_nothing_to_give_back_and_says_so() {
    let lab = Lab::start().await;
    let order = lab.order("tok_declined").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("DECLINED", Some(0)));
    assert_eq!(lab.gateway.calls(), 1);
}

#[tokio::test]
async fn a_cancellation_first_leaves_a_tombstone() {
    let lab = Lab::start().await;
    let order = lab.order("tok_visa").await;
    lab.refund(&[&lab.cancel(&order).await]).await.unwrap();
    lab.charge(&[&order.reserved()]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.taken_and_kept()), ("VOIDED", (0, 0)));
    assert_eq!(lab.gateway.calls(), 1, "the void");
    assert_eq!(lab.published(&order).await, ["PaymentRefunded 1"]);
    assert_eq!(lab.journal(&order).await, ["refund_payment COMPENSATED", "process_payment SKIPPED"]);
}

#[tokio::test]
async fn a_cancellation_said_twice_is_answered_twice_and_done_once() {
    let lab = Lab::start().await;
    let (order, unpaid) = (lab.order("tok_visa").await, lab.order("tok_visa").await);
    lab.charge(&[&order.reserved()]).await.unwrap();
    let first = lab.cancel(&order).await;
    let batch = [&first, &order.cancelled(), &lab.cancel(&unpaid).await, &unpaid.cancelled(), &first];
    lab.refund(&batch).await.unwrap();
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1", "PaymentRefunded 2", "PaymentRefunded 3"]);
    assert_eq!((lab.refunded(&order).await, lab.gateway.taken_and_kept()), (Some(PRICE), (PRICE, 0)));
    assert_eq!(lab.published(&unpaid).await, ["PaymentRefunded 1", "PaymentRefunded 2"]);
    assert_eq!(lab.refunded(&unpaid).await, Some(0));
    lab.refund(&[&order.cancelled()]).await.unwrap();
    assert_eq!((lab.published(&order).await.len(), lab.refunded(&order).await), (4, Some(PRICE)));
}

#[tokio::test]
async fn a_refund_whose_answer_is_lost_is_asked_for_again() {
    let lab = Lab::start().await;
    let order = lab.order("tok_visa").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    let cancelled = lab.cancel(&order).await;
    lab.gateway.next(&[Twist::Away]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("CAPTURED", None));
    lab.gateway.next(&[Twist::AnswerLost, Twist::Lost]);
    lab.refund(&[&cancelled]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.refunded(&order).await), ("REFUNDED", Some(PRICE)));
    assert_eq!(lab.gateway.taken_and_kept(), (PRICE, 0));
}
