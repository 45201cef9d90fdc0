//! All properties hold within the small bounds; without any one of the guards the checker refutes one.

use contracts::order_fulfillment::SAGA;
use saga::Trigger;

use crate::{
    Bounds, Guards, Saga,
    check::{Limits, Report, check},
    mail::{Kind, Reader},
    property::names,
};

#[test]
fn every_property_holds_within_the_small_bounds() {
    for bounds in Bounds::QUICK {
        let report = check(Saga::new(*bounds), Limits::default());
        assert!(report.explored.is_proven(), "{}\n{report}", Report::HEADER);
    }
}

/// Runs until the checker has refuted the property, and returns the counterexample.
fn refute(name: &'static str, bounds: Bounds, guards: Guards) -> Vec<String> {
    let limits = Limits { threads: 1, refute: Some(name), ..Limits::default() };
    let report = check(Saga { bounds, guards }, limits);
    let result = report.explored.result(name).expect("a property of the saga");
    assert!(!result.holds, "the property was not refuted:\n{report}");
    result.path.clone()
}

#[test]
fn without_the_inbox_an_event_takes_effect_twice() {
    let bounds = Bounds { retries: 0, ..Bounds::FAULT };
    let path = refute(names::ONCE, bounds, Guards { inbox: false, ..Guards::ALL });
    let again = ["PublishUnmarked", "DeliverUnacknowledged", "Duplicate", "Crash"];
    assert!(path.iter().any(|step| again.iter().any(|fault| step.starts_with(fault))), "{path:?}");
}

#[test]
fn without_tombstones_money_is_kept_after_the_undo() {
    refute(names::UNDONE, Bounds::CALM, Guards { tombstones: false, ..Guards::ALL });
}

#[test]
fn an_unconditional_timeout_reverts_an_ended_saga() {
    let unconditional = Guards { timeout_is_conditional: false, ..Guards::ALL };
    refute(names::PROGRESS, Bounds::CALM, unconditional);
}

#[test]
fn without_confirmations_a_saga_is_compensated_too_early() {
    refute(names::UNDONE, Bounds::CALM, Guards { undo_confirmations: false, ..Guards::ALL });
}

#[test]
fn without_the_lock_two_orders_reserve_the_same_unit() {
    refute(names::STOCK, Bounds::RACE, Guards { stock_is_locked: false, ..Guards::ALL });
}

#[test]
fn without_waiting_a_retry_is_counted_too_early() {
    refute(names::RETRIES, Bounds::CALM, Guards { retries_wait: false, ..Guards::ALL });
}

#[test]
fn without_a_detector_a_lost_event_blocks_an_order() {
    let path = refute(names::ENDED, Bounds { retries: 0, detectors: 0, ..Bounds::FAULT }, Guards::ALL);
    assert!(path.iter().any(|step| step.starts_with("Lose")), "{path:?}");
}

#[test]
fn the_model_covers_every_event_and_step_of_the_saga() {
    for step in SAGA.steps {
        let Trigger::Event(event) = step.on else { continue };
        let (kind, _) = Kind::ALL.into_iter().find(|(_, of)| *of == event).expect("an event of the model");
        let reader = Reader::of(step).expect("a step of the model");
        assert!(kind.readers().contains(&reader), "{}", step.name);
    }
}

mod of_the_twin {
    use crate::{
        check::{Explored, Limits, explore},
        twin::{Guards, Twin, names},
    };

    fn explored(faults: u8, guards: Guards, refute: Option<&'static str>) -> Explored {
        let twin = Twin::new(faults, 2, guards).expect("a complete table");
        explore(twin, Limits { threads: 1, refute, ..Limits::default() }, |action| format!("{action:?}"))
    }

    #[test]
    fn every_property_of_the_twin_holds_within_the_small_bounds() {
        let explored = explored(2, Guards::ALL, None);
        assert!(explored.is_proven(), "{explored}");
    }

    fn refuted(name: &'static str, faults: u8, guards: Guards) {
        let explored = explored(faults, guards, Some(name));
        assert!(explored.result(name).is_some_and(|result| !result.holds), "it was not refuted: {explored}");
    }

    #[test]
    fn a_coordinator_that_keeps_its_state_in_memory_forgets_an_order() {
        refuted(names::ENDED, 1, Guards { stored: false, ..Guards::ALL });
    }

    #[test]
    fn without_an_idempotency_key_a_card_is_charged_twice() {
        refuted(names::ONCE, 1, Guards { keyed: false, ..Guards::ALL });
    }

    #[test]
    fn without_tombstones_a_late_command_holds_stock() {
        refuted(names::UNDONE, 1, Guards { tombstones: false, ..Guards::ALL });
    }
}
