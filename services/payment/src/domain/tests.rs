//! The decisions one by one, over every possible payment, answer and saga.

use super::*;

fn charge() -> Reference {
    Reference("ch_1".to_owned())
}

fn declined() -> DeclineCode {
    DeclineCode("card_declined".to_owned())
}

fn payments() -> Vec<Payment> {
    let free = [Status::Pending, Status::Captured(charge()), Status::Declined(declined()), Status::Refunded(charge())];
    let voided = [Status::Voided { asked: false }, Status::Voided { asked: true }];
    let of = |cancelled| move |status| Payment { status, cancelled };
    let cancelled = free.clone().into_iter().chain(voided).map(of(true));
    free.into_iter().map(of(false)).chain(cancelled).collect()
}

fn answers() -> [Answer; 4] {
    [Answer::Captured(charge()), Answer::Declined(declined()), Answer::Refunded(charge()), Answer::Fenced]
}

/// Whether the payment can be cancelled without a call to the gateway.
fn needs_no_call(status: &Status) -> bool {
    has_ended(status) && *status != Status::Voided { asked: false }
}

fn has_ended(status: &Status) -> bool {
    !matches!(status, Status::Pending | Status::Captured(_))
}

#[test]
fn only_the_intent_of_an_order_that_moves_forward_is_charged() {
    for payment in payments() {
        for moves_forward in [true, false] {
            let charges = plan_charge(Some(&payment), moves_forward, 1_999) == Plan::Ask(Ask::Charge);
            let may_be = payment.status == Status::Pending && !payment.cancelled && moves_forward;
            assert_eq!(charges, may_be, "{payment:?} {moves_forward}");
        }
    }
    assert_eq!(plan_charge(None, false, 1_999), Plan::Skip(TOO_LATE));
}

#[test]
fn a_tombstone_is_never_charged_and_always_voided() {
    let tombstone = Payment { status: Status::Voided { asked: false }, cancelled: true };
    assert_eq!(plan_charge(Some(&tombstone), true, 1_999), Plan::Skip(CANCELLED));
    assert_eq!(plan_refund(&tombstone), Plan::Ask(Ask::Void));
    assert_eq!(apply_refund_answer(&tombstone, Some(&Answer::Fenced)), Ok(tombstone.status.clone()));
    assert_eq!(apply_refund_answer(&tombstone, Some(&Answer::Refunded(charge()))), Ok(Status::Refunded(charge())));
}

#[test]
fn a_cancelled_payment_that_may_have_been_charged_is_voided() {
    for status in [Status::Pending, Status::Captured(charge()), Status::Voided { asked: true }] {
        let payment = Payment { status, cancelled: true };
        assert_eq!(plan_charge(Some(&payment), false, 1_999), Plan::Ask(Ask::Void));
    }
}

#[test]
fn a_zero_amount_is_declined_without_a_call() {
    let payment = Payment { status: Status::Pending, cancelled: false };
    assert!(matches!(plan_charge(Some(&payment), true, 0), Plan::Known(Answer::Declined(_))));
}

#[test]
fn an_event_is_published_only_while_the_saga_moves_forward() {
    for payment in payments() {
        for answer in answers() {
            for moves_forward in [true, false] {
                let Ok(outcome) = apply_charge_answer(&payment, &answer, moves_forward) else { continue };
                let may_publish = payment.status == Status::Pending && !payment.cancelled && moves_forward;
                let published = !matches!(outcome.event, ChargeEvent::None(_));
                assert_eq!(published, may_publish, "{payment:?} {answer:?} {moves_forward}");
                let processed = matches!(outcome.event, ChargeEvent::Processed(_));
                assert_eq!(processed, may_publish && matches!(answer, Answer::Captured(_)));
            }
        }
    }
}

#[test]
fn a_late_capture_is_recorded_without_an_event() {
    let captured = Answer::Captured(charge());
    for cancelled in [true, false] {
        let payment = Payment { status: Status::Pending, cancelled };
        let outcome = apply_charge_answer(&payment, &captured, false);
        assert_eq!(outcome.map(|o| o.status), Ok(Status::Captured(charge())));
    }
}

#[test]
fn a_charge_refunded_at_the_gateway_does_not_pay_the_order() {
    let payment = Payment { status: Status::Pending, cancelled: false };
    let outcome = apply_charge_answer(&payment, &Answer::Refunded(charge()), true).expect("no contradiction");
    assert_eq!(outcome.status, Status::Refunded(charge()));
    assert!(matches!(outcome.event, ChargeEvent::Failed(_)));
}

#[test]
fn a_refund_ends_every_payment_or_fails() {
    for payment in payments().into_iter().filter(|p| p.cancelled) {
        for answer in answers().iter().map(Some).chain([None]) {
            if let Ok(status) = apply_refund_answer(&payment, answer) {
                assert!(has_ended(&status), "{payment:?} {answer:?}");
            }
        }
    }
}

#[test]
fn a_payment_that_may_hold_money_ends_only_after_a_call() {
    for payment in payments() {
        let asks = matches!(plan_refund(&payment), Plan::Ask(_));
        assert_eq!(asks, !needs_no_call(&payment.status));
        assert_eq!(apply_refund_answer(&payment, None).is_err(), asks);
    }
}

#[test]
fn an_ended_payment_changes_only_by_a_refund() {
    for payment in payments().into_iter().filter(|p| has_ended(&p.status)) {
        for answer in answers() {
            match status_after(&payment, &answer) {
                Ok(Status::Refunded(_)) => {}
                Ok(status) => assert_eq!(status, payment.status),
                Err(_) => assert!(matches!(answer, Answer::Captured(_))),
            }
        }
    }
}

#[test]
fn a_charge_of_a_voided_payment_is_voided_by_the_redelivery() {
    let voided = Payment { status: Status::Voided { asked: true }, cancelled: true };
    assert!(apply_charge_answer(&voided, &Answer::Captured(charge()), false).is_err());
    assert_eq!(plan_charge(Some(&voided), false, 1_999), Plan::Ask(Ask::Void));
    let outcome = apply_charge_answer(&voided, &Answer::Refunded(charge()), false).expect("no contradiction");
    assert_eq!(outcome.status, Status::Refunded(charge()));
}

#[test]
fn two_charges_under_one_key_are_a_contradiction() {
    let payment = Payment { status: Status::Captured(charge()), cancelled: false };
    let another = Answer::Captured(Reference("ch_2".to_owned()));
    assert!(apply_charge_answer(&payment, &another, true).is_err());
}

#[test]
fn a_repeated_answer_changes_nothing() {
    for payment in payments() {
        for answer in answers() {
            let Ok(status) = status_after(&payment, &answer) else { continue };
            let after = Payment { status: status.clone(), ..payment.clone() };
            assert_eq!(status_after(&after, &answer), Ok(status), "{payment:?} {answer:?}");
        }
    }
}
