//! The decisions one by one, over every payment, answer and saga there can be.

use proptest::prelude::*;

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
    [Answer::Captured(charge()), Answer::Declined(declined()), Answer::GivenBack(charge()), Answer::Fenced]
}

/// Whether the gateway need not be asked before the payment is given up: it has said so already.
fn is_known(status: &Status) -> bool {
    at_its_end(status) && *status != Status::Voided { asked: false }
}

fn at_its_end(status: &Status) -> bool {
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
    assert_eq!(settle_refund(&tombstone, Some(&Answer::Fenced)), Ok(tombstone.status.clone()));
    assert_eq!(settle_refund(&tombstone, Some(&Answer::GivenBack(charge()))), Ok(Status::Refunded(charge())));
}

#[test]
fn a_cancelled_payment_that_may_have_been_charged_is_voided() {
    for status in [Status::Pending, Status::Captured(charge()), Status::Voided { asked: true }] {
        let payment = Payment { status, cancelled: true };
        assert_eq!(plan_charge(Some(&payment), false, 1_999), Plan::Ask(Ask::Void));
    }
}

#[test]
fn nothing_to_pay_is_refused_without_asking() {
    let payment = Payment { status: Status::Pending, cancelled: false };
    assert!(matches!(plan_charge(Some(&payment), true, 0), Plan::Known(Answer::Declined(_))));
}

#[test]
fn a_capture_is_told_only_of_an_intent_whose_saga_moves_forward() {
    for payment in payments() {
        for answer in answers() {
            for moves_forward in [true, false] {
                let Ok(settled) = settle_charge(&payment, &answer, moves_forward) else { continue };
                let may_tell = payment.status == Status::Pending && !payment.cancelled && moves_forward;
                let told = !matches!(settled.tell, Tell::Nothing(_));
                assert_eq!(told, may_tell, "{payment:?} {answer:?} {moves_forward}");
                let processed = matches!(settled.tell, Tell::Processed(_));
                assert_eq!(processed, may_tell && matches!(answer, Answer::Captured(_)));
            }
        }
    }
}

#[test]
fn a_capture_too_late_to_be_told_is_recorded_all_the_same() {
    let captured = Answer::Captured(charge());
    for cancelled in [true, false] {
        let payment = Payment { status: Status::Pending, cancelled };
        let settled = settle_charge(&payment, &captured, false);
        assert_eq!(settled.map(|s| s.status), Ok(Status::Captured(charge())));
    }
}

#[test]
fn a_charge_given_back_behind_our_back_does_not_pay_the_order() {
    let payment = Payment { status: Status::Pending, cancelled: false };
    let settled = settle_charge(&payment, &Answer::GivenBack(charge()), true).expect("settled");
    assert_eq!(settled.status, Status::Refunded(charge()));
    assert!(matches!(settled.tell, Tell::Failed(_)));
}

#[test]
fn a_refund_ends_every_payment_or_fails() {
    for payment in payments().into_iter().filter(|p| p.cancelled) {
        for answer in answers().iter().map(Some).chain([None]) {
            if let Ok(status) = settle_refund(&payment, answer) {
                assert!(at_its_end(&status), "{payment:?} {answer:?}");
            }
        }
    }
}

#[test]
fn what_holds_or_may_hold_money_is_never_ended_without_asking() {
    for payment in payments() {
        let asks = matches!(plan_refund(&payment), Plan::Ask(_));
        assert_eq!(asks, !is_known(&payment.status));
        assert_eq!(settle_refund(&payment, None).is_err(), asks);
    }
}

#[test]
fn an_end_is_left_only_with_proof_that_the_money_went_back() {
    for payment in payments().into_iter().filter(|p| at_its_end(&p.status)) {
        for answer in answers() {
            match record(&payment, &answer) {
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
    assert!(settle_charge(&voided, &Answer::Captured(charge()), false).is_err());
    assert_eq!(plan_charge(Some(&voided), false, 1_999), Plan::Ask(Ask::Void));
    let settled = settle_charge(&voided, &Answer::GivenBack(charge()), false).expect("settled");
    assert_eq!(settled.status, Status::Refunded(charge()));
}

#[test]
fn two_charges_under_one_key_are_noticed() {
    let payment = Payment { status: Status::Captured(charge()), cancelled: false };
    let another = Answer::Captured(Reference("ch_2".to_owned()));
    assert!(settle_charge(&payment, &another, true).is_err());
}

proptest! {
    /// However answers repeat and mix, a payment never comes back from REFUNDED.
    #[test]
    fn refunded_is_for_ever(start in 0usize..10, mix in prop::collection::vec(0usize..4, 1..20)) {
        let mut payment = payments()[start % payments().len()].clone();
        let mut refunded = false;
        for which in mix {
            if let Ok(status) = record(&payment, &answers()[which]) {
                payment.status = status;
            }
            prop_assert!(!refunded || matches!(payment.status, Status::Refunded(_)));
            refunded |= matches!(payment.status, Status::Refunded(_));
        }
    }

    /// An answer that was recorded once changes nothing when it comes again.
    #[test]
    fn a_repeated_answer_changes_nothing(start in 0usize..10, which in 0usize..4) {
        let payment = payments()[start % payments().len()].clone();
        let answer = &answers()[which];
        if let Ok(status) = record(&payment, answer) {
            let after = Payment { status, ..payment };
            prop_assert_eq!(record(&after, answer), Ok(after.status.clone()));
        }
    }
}
