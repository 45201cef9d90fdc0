//! The saga holds within the small bounds; without any one of its guards the checker finds out.

use contracts::order_fulfillment::SAGA;
use saga::Trigger;

use crate::{
    Bounds, Guards, Saga,
    check::{Limits, Report, check},
    mail::{Kind, Reader},
    property::names,
};

#[test]
fn every_order_ends_right_within_the_small_bounds() {
    for bounds in Bounds::QUICK {
        let report = check(Saga::new(*bounds), Limits::default());
        assert!(report.is_proven(), "{}\n{report}", Report::HEADER);
    }
}

/// Runs without a guard, and returns the name of the property that did not hold.
fn without(bounds: Bounds, guards: Guards) -> (&'static str, usize) {
    let report = check(Saga { bounds, guards }, Limits { threads: 1, ..Limits::default() });
    let broken = report.properties.iter().find(|p| !p.holds && !p.path.is_empty());
    let broken = broken.unwrap_or_else(|| panic!("nothing was noticed:\n{report}"));
    (broken.name, broken.path.len())
}

#[test]
fn without_the_inbox_an_event_takes_effect_twice() {
    let (broken, steps) = without(Bounds { drives: 0, ..Bounds::FAULT }, Guards { inbox: false, ..Guards::ALL });
    assert_eq!(broken, names::ONCE);
    assert!(steps < 10, "{steps}");
}

#[test]
fn without_tombstones_money_is_kept_after_its_receipt() {
    let bounds = Bounds::CALM;
    let (broken, _) = without(bounds, Guards { tombstones: false, ..Guards::ALL });
    assert!([names::BOOKS, names::UNDONE].contains(&broken), "{broken}");
}

#[test]
fn a_timeout_without_its_condition_turns_back_what_has_ended() {
    let bounds = Bounds::CALM;
    let (broken, _) = without(bounds, Guards { timeout_is_conditional: false, ..Guards::ALL });
    assert!([names::PROGRESS, names::ONE_END, names::LEGAL].contains(&broken), "{broken}");
}

#[test]
fn without_receipts_an_order_is_called_compensated_that_is_not() {
    let bounds = Bounds::CALM;
    let (broken, _) = without(bounds, Guards { receipts: false, ..Guards::ALL });
    assert_eq!(broken, names::UNDONE);
}

#[test]
fn without_the_lock_two_orders_reserve_the_same_unit() {
    let (broken, _) =
        without(Bounds { cancels: false, ..Bounds::RACE }, Guards { stock_is_locked: false, ..Guards::ALL });
    assert_eq!(broken, names::STOCK);
}

#[test]
fn the_model_knows_every_event_that_somebody_reads_and_every_step_that_reads_one() {
    for step in SAGA.steps {
        let Trigger::Event(event) = step.on else { continue };
        let kind = Kind::ALL.into_iter().find(|kind| kind.event_type() == event).expect("an event of the model");
        let reader = Reader::of(step).expect("a step of the model");
        assert!(kind.readers().contains(&reader), "{}", step.name);
    }
}
