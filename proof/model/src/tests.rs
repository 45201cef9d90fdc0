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

/// Runs until the checker has refuted the property, and returns how.
fn refute(name: &'static str, bounds: Bounds, guards: Guards) -> Vec<String> {
    let limits = Limits { threads: 1, refute: Some(name), ..Limits::default() };
    let report = check(Saga { bounds, guards }, limits);
    let finding = report.finding(name).expect("a property of the saga");
    assert!(!finding.holds, "nothing was noticed:\n{report}");
    finding.path.clone()
}

#[test]
fn without_the_inbox_an_event_takes_effect_twice() {
    let bounds = Bounds { drives: 0, ..Bounds::FAULT };
    let path = refute(names::ONCE, bounds, Guards { inbox: false, ..Guards::ALL });
    let again = ["PublishUnmarked", "DeliverUnacknowledged", "Duplicate", "Crash"];
    assert!(path.iter().any(|step| again.iter().any(|fault| step.starts_with(fault))), "{path:?}");
}

#[test]
fn without_tombstones_money_is_kept_after_its_receipt() {
    refute(names::UNDONE, Bounds::CALM, Guards { tombstones: false, ..Guards::ALL });
}

#[test]
fn a_timeout_without_its_condition_turns_back_what_has_ended() {
    let unconditional = Guards { timeout_is_conditional: false, ..Guards::ALL };
    refute(names::PROGRESS, Bounds::CALM, unconditional);
}

#[test]
fn without_receipts_an_order_is_called_compensated_that_is_not() {
    refute(names::UNDONE, Bounds::CALM, Guards { receipts: false, ..Guards::ALL });
}

#[test]
fn without_the_lock_two_orders_reserve_the_same_unit() {
    refute(names::STOCK, Bounds::RACE, Guards { stock_is_locked: false, ..Guards::ALL });
}

#[test]
fn without_patience_attempts_are_used_up_that_nobody_could_have_answered() {
    refute(names::PATIENCE, Bounds::CALM, Guards { attempts_wait: false, ..Guards::ALL });
}

#[test]
fn without_a_detector_a_lost_event_leaves_an_order_without_an_end() {
    let path = refute(names::ENDED, Bounds { drives: 0, detectors: 0, ..Bounds::FAULT }, Guards::ALL);
    assert!(path.iter().any(|step| step.starts_with("Lose")), "{path:?}");
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
