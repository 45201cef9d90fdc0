//! A coordinator's commands to charge and to refund the same order, in either order and at the same time: at most one charge is
//! made, and after the refund no money is held.

use contracts::orchestrated::{self, PROCESS_PAYMENT, REFUND_PAYMENT};
use saga::Step;
use serde_json::{Value, json};

use crate::{
    lab::{Lab, Order, PRICE},
    routes::post,
};

/// A status, and a body.
type Answer = (u16, Value);

fn done() -> Answer {
    (200, json!({"outcome": "DONE"}))
}

fn refused() -> Answer {
    (200, json!({"outcome": "REFUSED", "reason": "the order was cancelled"}))
}

async fn command(lab: &Lab, step: &Step, order: &Order) -> Answer {
    let (router, _) = payment::router(&lab.app).split_for_parts();
    let Order { order_id, saga_id, method } = order;
    let total = json!({"amount": PRICE, "currency": "USD"});
    let body = json!({"saga_id": saga_id, "order_id": order_id, "total": total, "payment_method": method});
    post(&router, orchestrated::path(step), &body).await
}

/// Commands the first step, and the second one while the card processor holds a call of the first.
async fn command_during(lab: &Lab, order: &Order, [first, second]: [&Step; 2]) -> [Answer; 2] {
    let meanwhile = async {
        lab.gateway.called(1).await;
        let answer = command(lab, second, order).await;
        lab.gateway.release();
        answer
    };
    tokio::join!(command(lab, first, order), meanwhile).into()
}

/// No money is held, and a repeat of either command changes nothing.
async fn assert_undone(lab: &Lab, order: &Order, status: &str, charged: i64) {
    for _ in 0..2 {
        assert_eq!((lab.payment(order).await.as_str(), lab.gateway.charged_and_held()), (status, (charged, 0)));
        assert_eq!(command(lab, &PROCESS_PAYMENT, order).await, refused());
        assert_eq!(command(lab, &REFUND_PAYMENT, order).await, done());
    }
}

#[tokio::test]
async fn a_commanded_refund_returns_the_one_charge() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    for _ in 0..2 {
        assert_eq!(command(&lab, &PROCESS_PAYMENT, &order).await, done());
        assert_eq!(lab.gateway.charged_and_held(), (PRICE, PRICE));
    }
    assert_eq!(command(&lab, &REFUND_PAYMENT, &order).await, done());
    assert_undone(&lab, &order, "REFUNDED", PRICE).await;
}

#[tokio::test]
async fn a_charge_commanded_after_its_refund_is_never_made() {
    let (lab, order) = Lab::with_order("tok_visa").await;
    assert_eq!(command(&lab, &REFUND_PAYMENT, &order).await, done());
    assert_undone(&lab, &order, "VOIDED", 0).await;
}

/// The charge is at the processor: not made yet, or made and not answered.
#[tokio::test]
async fn a_refund_commanded_during_the_charge_leaves_no_money() {
    for (method, status, charged) in [("tok_held", "VOIDED", 0), ("tok_answer_held", "REFUNDED", PRICE)] {
        let (lab, order) = Lab::with_order(method).await;
        let answers = command_during(&lab, &order, [&PROCESS_PAYMENT, &REFUND_PAYMENT]).await;
        assert_eq!(answers, [refused(), done()], "{method}");
        assert_undone(&lab, &order, status, charged).await;
    }
}

#[tokio::test]
async fn a_charge_commanded_during_the_refund_calls_nobody() {
    let (lab, order) = Lab::with_order("tok_void_held").await;
    let answers = command_during(&lab, &order, [&REFUND_PAYMENT, &PROCESS_PAYMENT]).await;
    assert_eq!((answers, lab.gateway.calls()), ([done(), refused()], 1));
    assert_undone(&lab, &order, "VOIDED", 0).await;
}

#[tokio::test]
async fn concurrent_commands_neither_deadlock_nor_keep_money() {
    let lab = Lab::start().await;
    for _ in 0..20 {
        let order = lab.order("tok_visa").await;
        let (before, _) = lab.gateway.charged_and_held();
        let charge = || command(&lab, &PROCESS_PAYMENT, &order);
        let refund = || command(&lab, &REFUND_PAYMENT, &order);
        let (first, undone, second, undone_again) = tokio::join!(charge(), refund(), charge(), refund());
        for charged in [first, second] {
            assert!([done(), refused()].contains(&charged), "{charged:?}");
        }
        assert_eq!((undone, undone_again), (done(), done()));
        let (charged, held) = lab.gateway.charged_and_held();
        let payment = (lab.payment(&order).await, charged - before);
        assert!([("VOIDED".to_owned(), 0), ("REFUNDED".to_owned(), PRICE)].contains(&payment), "{payment:?}");
        assert_eq!(held, 0);
    }
}
