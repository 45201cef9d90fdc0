//! Proves that a saga's table is whole: no event without a publisher or a reader, no step that
//! could not be undone.

use std::collections::HashSet;

use crate::{EventType, Kind, SagaDefinition, Service, Step, Trigger};

impl SagaDefinition {
    /// Everything that is wrong with the definition, as sentences; empty when it is sound.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.check_names(&mut wrong);
        for event in self.events() {
            self.check_publishers(event, &mut wrong);
            self.check_readers(event, &mut wrong);
        }
        for step in self.steps {
            self.check_compensation(step, &mut wrong);
            if self.is_undone_by(step) != (step.kind == Kind::Cancellation) {
                wrong.push(format!("{} must be a cancellation if it has the saga undone, and only then", step.name));
            }
        }
        self.check_behind_pivot(&mut wrong);
        wrong
    }

    /// What is owed is known by its service.
    fn check_behind_pivot(&self, wrong: &mut Vec<String>) {
        let mut owing = HashSet::new();
        for step in self.behind_pivot() {
            if step.service.is_none_or(|service| !owing.insert(service)) {
                wrong.push(format!(
                    "{} needs a service of its own: each has at most one step behind the pivot",
                    step.name
                ));
            }
        }
    }

    /// Every event that a step emits or waits for, once.
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
                wrong.push(format!("two steps are called {}", step.name));
            }
            if step.emits.is_empty() {
                wrong.push(format!("{} emits nothing: nobody would know that it happened", step.name));
            }
        }
    }

    /// An event is stated by one service, unless it says itself that any of several may.
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
                "{} is declared to come from {declared:?}, but its steps are of {emitters:?}",
                event.name
            ));
        }
    }

    fn check_readers(&self, event: EventType, wrong: &mut Vec<String>) {
        let read = self.steps.iter().any(|s| s.on == Trigger::Event(event));
        let terminal = self.terminal.contains(&event);
        match (read, terminal) {
            (false, false) => wrong.push(format!("nobody reads {}, and it ends nothing", event.name)),
            (true, true) => wrong.push(format!("{} is called terminal, but a step waits for it", event.name)),
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
                Some(undo) if undo.service != step.service => {
                    wrong.push(format!("{} is compensated by {name}, a step of another service", step.name));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Breaker, CompensationPolicy, Retry, SagaState, Status, Transition};

    const ORDER: Service = Service("order");
    const SHIPPING: Service = Service("shipping");
    const BILLING: Service = Service("billing");

    const fn event(name: &'static str, publishers: &'static [Service]) -> EventType {
        EventType { name, version: 1, aggregate: "order", publishers, refusal: false }
    }

    const CONFIRMED: EventType = event("OrderConfirmed", &[ORDER]);
    const SHIPPED: EventType = event("OrderShipped", &[SHIPPING]);
    const BILLED: EventType = event("OrderBilled", &[BILLING]);

    const fn step(number: u8, name: &'static str, service: Service, on: Trigger, emits: &'static [EventType]) -> Step {
        Step {
            number,
            name,
            service: Some(service),
            on,
            emits,
            kind: Kind::Retriable,
            retry: Retry::DEFAULT,
            breaker: Breaker::DEFAULT,
            time_limit: Step::TIME_LIMIT,
        }
    }

    static CONFIRM: Step = Step { kind: Kind::Pivot, ..step(1, "confirm", ORDER, Trigger::Http, &[CONFIRMED]) };
    static SHIP: Step = step(2, "ship", SHIPPING, Trigger::Event(CONFIRMED), &[SHIPPED]);
    static BILL: Step = step(0, "bill", BILLING, Trigger::Event(SHIPPED), &[BILLED]);

    /// Confirmed, shipped, and billed when it is shipped.
    const SAGA: SagaDefinition = SagaDefinition {
        saga_type: "Shipment",
        steps: &[&BILL, &CONFIRM, &SHIP],
        deadline: Duration::from_secs(60),
        compensation: CompensationPolicy { deadline: Duration::from_secs(60), max_attempts: 5 },
        terminal: &[BILLED],
    };

    #[test]
    fn what_the_pivot_sets_in_motion_is_owed() {
        assert_eq!(SAGA.check(), Vec::<String>::new());
        assert_eq!(SAGA.behind_pivot().iter().map(|s| s.name).collect::<Vec<_>>(), ["ship", "bill"]);
        assert_eq!(SAGA.total_steps(), 2, "what stands beside the way does not count");
        let running = SagaState { status: Status::InProgress, ..SagaState::started() };
        let owing = SAGA.apply(&running, Transition::Complete { step: 1 }).expect("legal");
        assert_eq!(owing.receipts_due, [SHIPPING.0, BILLING.0]);
        let by_customer = Transition::Compensate { by_customer: true };
        assert!(SAGA.apply(&owing, by_customer).is_ok());
        let billed = SAGA.apply(&owing, Transition::Fulfil { step: 0, by: BILLING }).expect("legal");
        assert!(SAGA.apply(&billed, by_customer).is_ok(), "billing stands beside the way");
        let shipped = SAGA.apply(&owing, Transition::Fulfil { step: 2, by: SHIPPING }).expect("legal");
        assert!(SAGA.is_past_pivot(&shipped) && SAGA.apply(&shipped, by_customer).is_err());
    }

    #[test]
    fn two_owed_steps_of_one_service_are_noticed() {
        static AGAIN: Step = step(3, "ship_again", SHIPPING, Trigger::Event(CONFIRMED), &[SHIPPED]);
        static STEPS: [&Step; 4] = [&BILL, &CONFIRM, &SHIP, &AGAIN];
        let wrong = SagaDefinition { steps: &STEPS, ..SAGA }.check();
        assert!(wrong.iter().any(|w| w.starts_with("ship_again needs a service")), "{wrong:?}");
    }
}
