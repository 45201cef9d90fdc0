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
        wrong
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
