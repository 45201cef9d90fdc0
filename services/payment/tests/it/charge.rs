//! `process_payment`: one charge and one event, despite lost answers of the gateway.

use crate::{
    lab::{Lab, PRICE},
    scripted_gateway::CallFault,
};

#[tokio::test]
async fn a_declined_card_is_an_event_and_no_failure() {
    let (lab, order) = Lab::with_order("tok_declined").await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    assert_eq!(lab.payment(&order).await, "DECLINED");
    assert_eq!(lab.published(&order).await, ["PaymentFailed 1"]);
    assert_eq!(lab.journal(&order).await, ["process_payment FAILED"]);
    assert_eq!(lab.gateway.calls(), 1);
}

#[tokio::test]
async fn a_good_card_is_charged_once_despite_redeliveries() {
    let lab = Lab::start().await;
    let (order, held) = (lab.order("tok_visa").await, lab.order("tok_held").await);
    let (event, slow) = (order.reserved(), held.reserved());
    for _ in 0..3 {
        lab.charge(&[&event, &event]).await.unwrap();
    }
    assert_eq!(lab.gateway.calls(), 2, "twice in its first batch, and in the inbox afterwards");
    let release = async {
        lab.gateway.called(5).await;
        lab.gateway.release();
    };
    let same = [slow.clone()];
    let batch: Vec<_> = same.iter().collect();
    let (a, b, c, ()) = tokio::join!(lab.charge(&batch), lab.charge(&batch), lab.charge(&batch), release);
    a.and(b).and(c).unwrap();
    for order in [order, held] {
        assert_eq!(lab.payment(&order).await, "CAPTURED");
        assert_eq!(lab.published(&order).await, ["PaymentProcessed 1"]);
        assert_eq!(lab.journal(&order).await, ["process_payment COMPLETED"]);
    }
    assert_eq!(lab.gateway.charged_and_held(), (2 * PRICE, 2 * PRICE));
}

#[tokio::test]
async fn an_unknown_outcome_is_retried_under_the_same_key() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    lab.gateway.next(&[CallFault::AnswerLost, CallFault::RequestLost, CallFault::AnswerLost]);
    lab.charge(&[&order.reserved()]).await.unwrap();
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1"]);
    assert_eq!((lab.gateway.calls(), lab.gateway.charged_and_held()), (4, (PRICE, PRICE)));
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_never_guessed() {
    let lab = Lab::start().await;
    let (order, other) = (lab.order("tok_declined").await, lab.order("tok_visa").await);
    let event = order.reserved();
    lab.charge_unanswered(&event).await;
    assert_eq!((lab.gateway.calls(), lab.is_processed(event.meta.event_id).await), (5, false));
    assert_eq!((lab.payment(&order).await.as_str(), lab.journal(&order).await.len()), ("PENDING", 0));
    lab.charge(&[&event, &other.reserved()]).await.unwrap();
    assert_eq!(lab.published(&order).await, ["PaymentFailed 1"]);
    assert_eq!(lab.published(&other).await, ["PaymentProcessed 1"]);
}

#[tokio::test]
async fn an_unreachable_gateway_is_called_once_per_delivery() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    let event = order.reserved();
    lab.gateway.next(&[CallFault::Unreachable]);
    lab.charge(&[&event]).await.unwrap();
    assert_eq!((lab.gateway.calls(), lab.is_processed(event.meta.event_id).await), (1, false));
    lab.charge(&[&event]).await.unwrap();
    assert_eq!(lab.published(&order).await, ["PaymentProcessed 1"]);
}

#[tokio::test]
async fn a_slow_card_delays_no_other() {
    let lab = Lab::start().await;
    let (slow, quick) = (lab.order("tok_held").await, lab.order("tok_visa").await);
    let (first, second) = (slow.reserved(), quick.reserved());
    let batch = [&first, &second];
    let release = async {
        while lab.published(&quick).await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lab.payment(&slow).await, "PENDING");
        lab.gateway.release();
    };
    let (committed, ()) = tokio::join!(lab.charge(&batch), release);
    committed.unwrap();
    assert_eq!(lab.published(&slow).await, ["PaymentProcessed 1"]);
}

#[tokio::test]
async fn a_saga_that_timed_out_is_not_charged() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    lab.time_out(&order).await;
    lab.charge(&[&order.reserved()]).await.unwrap();
    assert_eq!((lab.payment(&order).await.as_str(), lab.gateway.calls()), ("", 0));
    assert_eq!(lab.journal(&order).await, ["process_payment SKIPPED"]);
}

#[tokio::test]
async fn an_event_of_no_saga_is_left_out() {
    let lab = Lab::start().await;
    let (order, sound) = (lab.order("tok_visa").await, lab.order("tok_visa").await);
    let mut stray = order.reserved();
    stray.meta.published_in.saga = None;
    lab.charge(&[&stray, &sound.reserved()]).await.unwrap();
    assert!(!lab.is_processed(stray.meta.event_id).await);
    assert_eq!((lab.payment(&order).await.as_str(), lab.payment(&sound).await.as_str()), ("", "CAPTURED"));
}
