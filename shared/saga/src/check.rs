//! Checks that a saga's table is complete: every event has a publisher and a reader, every step that needs a
//! compensation has one.

use std::collections::HashSet;

use crate::{EventType, Kind, SagaDefinition, Service, Step, Trigger};

impl SagaDefinition {
    /// Every error of the definition, as sentences; empty when it is valid.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.check_names(&mut wrong);
        for event in self.events() {
            self.check_publishers(event, &mut wrong);
            self.check_readers(event, &mut wrong);
        }
        for step in self.steps {
            self.check_compensation(step, &mut wrong);
            if self.is_orchestrated() {
                continue;
            }
            if self.starts_compensation(step) != (step.kind == Kind::Cancellation) {
                wrong.push(format!("{} must be a cancellation if and only if it starts the compensation", step.name));
            }
        }
        let compensations = self.steps.iter().copied().filter(|step| step.is_compensation());
        check_services(compensations, "compensation", &mut wrong);
        check_services(self.after_pivot(), "step after the pivot", &mut wrong);
        self.check_after_pivot(&mut wrong);
        wrong
    }

    /// Only a step that the pivot triggers is owed.
    fn check_after_pivot(&self, wrong: &mut Vec<String>) {
        let owed = self.after_pivot();
        for step in &owed {
            let before = |s: &&&Step| s.kind != Kind::Pivot && !owed.contains(*s);
            let triggers = |s: &&&Step| step.consumes().is_some_and(|event| s.emits.contains(&event));
            for early in self.steps.iter().filter(before).filter(triggers) {
                wrong.push(format!(
                    "{} is a step after the pivot, but {}, which is not, triggers it as well",
                    step.name, early.name
                ));
            }
        }
    }

    /// Every event that a step emits or consumes, once.
    pub fn events(&self) -> Vec<EventType> {
        let mut seen = HashSet::new();
        let emitted = self.steps.iter().flat_map(|s| s.emits.iter().copied());
        let awaited = self.steps.iter().filter_map(|s| s.consumes());
        emitted.chain(awaited).filter(|e| seen.insert(*e)).collect()
    }

    fn check_names(&self, wrong: &mut Vec<String>) {
        let mut seen = HashSet::new();
        for step in self.steps {
            if !seen.insert(step.name) {
                wrong.push(format!("two steps have the name {}", step.name));
            }
            if step.emits.is_empty() != self.is_orchestrated() {
                let amount =
                    if step.emits.is_empty() { "no event" } else { "an event, although the saga is orchestrated" };
                wrong.push(format!("{} emits {amount}", step.name));
            }
        }
    }

    /// An event is published by one service, unless its type declares several publishers.
    fn check_publishers(&self, event: EventType, wrong: &mut Vec<String>) {
        let emitters: HashSet<Option<Service>> =
            self.steps.iter().filter(|s| s.emits.contains(&event)).map(|s| s.service).collect();
        let declared: HashSet<Service> = event.publishers.iter().copied().collect();
        let sound = match emitters.iter().collect::<Vec<_>>()[..] {
            [Some(one)] => declared.len() == 1 && declared.contains(one),
            [None] => !declared.is_empty(),
            _ => false,
        };
        if !sound {
            wrong.push(format!(
                "{} is declared to be published by {declared:?}, but is emitted by steps of {emitters:?}",
                event.name
            ));
        }
    }

    fn check_readers(&self, event: EventType, wrong: &mut Vec<String>) {
        let read = self.steps.iter().any(|s| s.on == Trigger::Event(event));
        let terminal = self.terminal.contains(&event);
        match (read, terminal) {
            (false, false) => wrong.push(format!("{} has no reader and is not terminal", event.name)),
            (true, true) => wrong.push(format!("{} is terminal, but a step consumes it", event.name)),
            _ => {}
        }
    }

    fn check_compensation(&self, step: &Step, wrong: &mut Vec<String>) {
        let Kind::Compensatable { by } = step.kind else { return };
        if by.is_empty() {
            wrong.push(format!("{} names no compensation", step.name));
        }
        for name in by {
            match self.steps.iter().find(|s| s.name == *name) {
                None => wrong.push(format!("{} is compensated by {name}, which does not exist", step.name)),
                Some(compensation) if compensation.service != step.service => {
                    wrong.push(format!("{} is compensated by {name}, a step of another service", step.name));
                }
                Some(_) => {}
            }
        }
    }
}

/// Receipts and owed steps are identified by their service, so a service has at most one of each.
fn check_services(steps: impl IntoIterator<Item = &'static Step>, what: &str, wrong: &mut Vec<String>) {
    let mut services = HashSet::new();
    for step in steps {
        if step.service.is_none_or(|service| !services.insert(service)) {
            wrong.push(format!("{} needs a service of its own: each has at most one {what}", step.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{CompensationPolicy, SagaState, Status, Transition};

    const ORDER: Service = Service("order");
    const SHIPPING: Service = Service("shipping");
    const BILLING: Service = Service("billing");

    const fn event(name: &'static str, publishers: &'static [Service]) -> EventType {
        EventType { name, version: 1, aggregate: "order", publishers, refusal: false }
    }

    const CONFIRMED: EventType = event("OrderConfirmed", &[ORDER]);
    const SHIPPED: EventType = event("OrderShipped", &[SHIPPING]);
    const BILLED: EventType = event("OrderBilled", &[BILLING]);

    static CONFIRM: Step = Step::on_request(1, "confirm", ORDER, &[CONFIRMED], Kind::Pivot);
    static SHIP: Step = Step::new(2, "ship", Some(SHIPPING), Trigger::Event(CONFIRMED), &[SHIPPED], Kind::Retriable);
    static BILL: Step = Step::new(0, "bill", Some(BILLING), Trigger::Event(SHIPPED), &[BILLED], Kind::Retriable);

    /// Confirmed, shipped, and billed once it is shipped.
    const SAGA: SagaDefinition = SagaDefinition {
        saga_type: "Shipment",
        steps: &[&BILL, &CONFIRM, &SHIP],
        deadline: Duration::from_secs(60),
        compensation: CompensationPolicy { deadline: Duration::from_secs(60), max_attempts: 5 },
        terminal: &[BILLED],
    };

    #[test]
    fn steps_that_the_pivot_triggers_are_owed() {
        assert_eq!(SAGA.check(), Vec::<String>::new());
        assert_eq!(SAGA.after_pivot().iter().map(|s| s.name).collect::<Vec<_>>(), ["ship", "bill"]);
        assert_eq!(SAGA.total_steps(), 2, "a step without a number does not count");
        let running = SagaState { status: Status::InProgress, ..SagaState::started() };
        let owing = SAGA.apply(&running, Transition::Complete { step: 1 }).expect("legal");
        assert_eq!(owing.receipts_due, [SHIPPING.0, BILLING.0]);
        let by_customer = Transition::Compensate { by_customer: true };
        assert!(SAGA.apply(&owing, by_customer).is_ok());
        let billed = SAGA.apply(&owing, Transition::Fulfil { step: 0, by: BILLING }).expect("legal");
        assert!(SAGA.apply(&billed, by_customer).is_ok(), "billing has no number");
        let shipped = SAGA.apply(&owing, Transition::Fulfil { step: 2, by: SHIPPING }).expect("legal");
        assert!(shipped.past_pivot && SAGA.apply(&shipped, by_customer).is_err());
    }

    #[test]
    fn an_owed_step_with_an_earlier_trigger_is_reported() {
        static PLACE: Step =
            Step::on_request(0, "place", ORDER, &[CONFIRMED], Kind::Compensatable { by: &["unplace"] });
        static STEPS: [&Step; 4] = [&PLACE, &CONFIRM, &SHIP, &BILL];
        let wrong = SagaDefinition { steps: &STEPS, ..SAGA }.check();
        let expected = "ship is a step after the pivot, but place, which is not, triggers it as well";
        assert!(wrong.iter().any(|w| w == expected), "{wrong:?}");
        assert!(!wrong.iter().any(|w| w.starts_with("bill is a step")), "{wrong:?}");
    }

    #[test]
    fn two_compensations_of_one_service_are_reported() {
        static UNSHIP: Step = Step { name: "unship", kind: Kind::Compensation, ..SHIP };
        static UNPACK: Step = Step { name: "unpack", ..UNSHIP };
        static ONE: [&Step; 1] = [&UNSHIP];
        static TWO: [&Step; 2] = [&UNSHIP, &UNPACK];
        let expected = "unpack needs a service of its own: each has at most one compensation".to_owned();
        assert!(SagaDefinition { steps: &TWO, ..SAGA }.check().contains(&expected));
        assert!(!SagaDefinition { steps: &ONE, ..SAGA }.check().contains(&expected));
    }

    #[test]
    fn two_owed_steps_of_one_service_are_reported() {
        static AGAIN: Step = Step { number: 3, name: "ship_again", ..SHIP };
        static STEPS: [&Step; 4] = [&BILL, &CONFIRM, &SHIP, &AGAIN];
        let wrong = SagaDefinition { steps: &STEPS, ..SAGA }.check();
        assert!(wrong.iter().any(|w| w.starts_with("ship_again needs a service")), "{wrong:?}");
    }
}
