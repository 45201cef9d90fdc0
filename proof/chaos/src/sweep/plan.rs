//! The plan of crashes: which service passes which point, in which step.

use contracts::{ORDER, PAYMENT, SERVICES, catalogue, orchestrated, order_fulfillment};
use faults::FaultPoint;
use saga::{Service, Step, Trigger};

/// The selected crashes.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    pub points: &'a [FaultPoint],
    /// The passes of a point at which to crash.
    pub hits: &'a [u32],
    /// Only crashes in these steps, at the points that know the step; if empty, all crashes.
    pub steps: &'a [&'a str],
}

impl Selection<'_> {
    /// The points of the selected crashes.
    pub(super) fn points(&self) -> impl Iterator<Item = FaultPoint> {
        let knows_any = |point: FaultPoint| steps().any(|step| self.selects(step) && impossible(point, step).is_none());
        let selected = move |point: &FaultPoint| self.steps.is_empty() || point.knows_step() && knows_any(*point);
        self.points.iter().copied().filter(selected)
    }

    /// The steps in which this point must be hit.
    pub(super) fn steps_at(&self, point: FaultPoint) -> impl Iterator<Item = &'static Step> {
        let stepwise = point.knows_step() && self.hits.contains(&1);
        steps().filter(move |step| stepwise && self.selects(step) && impossible(point, step).is_none())
    }

    pub(super) fn selects(&self, step: &Step) -> bool {
        self.steps.is_empty() || self.steps.contains(&step.name)
    }
}

/// One crash: the point, the pass, and the service.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub point: FaultPoint,
    /// Counted from 1.
    pub hit: u32,
    /// Only passes in this step count.
    pub step: Option<&'static Step>,
    pub service: Service,
}

impl Case {
    /// The step as a scope of the fault, which exists only where an event is processed, or a coordinator has the step taken.
    pub(super) fn scope(&self) -> Option<&'static str> {
        self.step.filter(|step| step.consumes().is_some() || is_orchestrated(step)).map(|step| step.name)
    }

    /// Whether it is a crash in the orchestrated twin.
    pub(super) fn is_orchestrated(&self) -> bool {
        self.step.is_some_and(is_orchestrated)
            || matches!(self.point, FaultPoint::ParticipantCall | FaultPoint::AfterCallBeforeTransition)
    }
}

/// All crashes, in groups that share one audit. No group crashes a service twice, because its next start might repair a violation
/// before the audit. At a point that knows the step, the crashes in each step are those at the 1st pass.
pub(super) fn groups(selection: &Selection<'_>) -> Vec<Vec<Case>> {
    let mut groups = Vec::new();
    for point in selection.points() {
        let mut cases = Vec::new();
        for step in selection.steps_at(point) {
            let case = |service| Case { point, hit: 1, step: Some(step), service };
            cases.extend(takers(point, step).into_iter().map(case));
        }
        let in_any_step = selection.hits.iter().copied().filter(|hit| *hit != 1 || !point.knows_step());
        for hit in in_any_step.filter(|_| selection.steps.is_empty()) {
            cases.extend(passers(point).iter().map(|service| Case { point, hit, step: None, service: *service }));
        }
        let mut of_point: Vec<Vec<Case>> = Vec::new();
        for case in cases {
            let has_room = |group: &&mut Vec<Case>| group.iter().all(|other| other.service != case.service);
            match of_point.iter_mut().find(has_room) {
                Some(group) => group.push(case),
                None => of_point.push(vec![case]),
            }
        }
        groups.extend(of_point);
    }
    groups
}

/// Every step of the saga, of its orchestrated twin, and of the projections.
pub(super) fn steps() -> impl Iterator<Item = &'static Step> {
    let twin = orchestrated::SAGA.steps.iter();
    order_fulfillment::SAGA.steps.iter().chain(twin).chain(catalogue::PROJECTIONS).copied()
}

/// Whether it is a step of the orchestrated twin, whose steps have the names of the choreographed ones.
pub(super) fn is_orchestrated(step: &Step) -> bool {
    orchestrated::SAGA.steps.iter().any(|twin| std::ptr::eq(*twin, step))
}

/// How reports name the step.
pub(super) fn label(step: &Step) -> String {
    if is_orchestrated(step) { format!("orchestrated {}", step.name) } else { step.name.to_owned() }
}

/// The service that the coordinator has take the step, if it is not its own.
fn commanded(step: &Step) -> Option<Service> {
    step.service.filter(|service| step.on == Trigger::Command && *service != ORDER)
}

/// Why no crash is possible in the step at this point, which knows the step; none when it is possible.
pub(super) fn impossible(point: FaultPoint, step: &Step) -> Option<&'static str> {
    let of_transactions = matches!(point, FaultPoint::BeforeCommit | FaultPoint::AfterCommitBeforePublish);
    let of_commands = matches!(point, FaultPoint::ParticipantCall | FaultPoint::AfterCallBeforeTransition);
    if of_commands {
        return commanded(step).is_none().then_some("no coordinator commands the step");
    }
    if is_orchestrated(step) && step.name == "detect_timeout" {
        return Some("its transition is committed with the one of cancel_order");
    }
    let possible = of_transactions || step.consumes().is_some();
    (!possible).then_some("no event triggers the step: nothing is delivered, claimed or acknowledged")
}

/// The services that pass the point in the step.
fn takers(point: FaultPoint, step: &Step) -> Vec<Service> {
    if !is_orchestrated(step) {
        return step.service.map_or_else(|| SERVICES.to_vec(), |service| vec![service]);
    }
    match (point, commanded(step)) {
        (FaultPoint::ParticipantCall | FaultPoint::AfterCallBeforeTransition, _) | (_, None) => vec![ORDER],
        // Its transition is committed with the one of confirm_order, or of cancel_order.
        (_, Some(participant)) if step.name == "process_payment" => vec![participant],
        (_, Some(participant)) => vec![ORDER, participant],
    }
}

/// The services that pass the point.
fn passers(point: FaultPoint) -> &'static [Service] {
    match point {
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => &[PAYMENT],
        FaultPoint::ParticipantCall | FaultPoint::AfterCallBeforeTransition => &[ORDER],
        _ => &SERVICES,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(hits: &[u32]) -> Selection<'_> {
        Selection { points: &FaultPoint::ALL, hits, steps: &[] }
    }

    fn cases(hits: &[u32]) -> Vec<Case> {
        groups(&all(hits)).concat()
    }

    #[test]
    fn a_selected_step_crashes_once_at_each_point_that_knows_it() {
        let selection = Selection { steps: &["cancel_unpaid_order"], ..all(&[1, 2]) };
        let cases = groups(&selection).concat();
        let knowing = FaultPoint::ALL.into_iter().filter(|point| point.knows_step());
        let step = &order_fulfillment::CANCEL_UNPAID_ORDER.step;
        assert_eq!(cases.len(), knowing.filter(|point| impossible(*point, step).is_none()).count());
        assert!(
            cases.iter().all(|case| case.hit == 1 && case.step.is_some_and(|step| step.name == "cancel_unpaid_order"))
        );
    }

    #[test]
    fn every_possible_step_is_crashed_in_each_service_that_takes_it() {
        let cases = cases(&[1, 2, 10]);
        for point in FaultPoint::ALL.into_iter().filter(|point| point.knows_step()) {
            for step in steps() {
                let of_this = |case: &&Case| case.point == point && case.step.is_some_and(|s| std::ptr::eq(s, step));
                let crashed: BTreeSet<&str> = cases.iter().filter(of_this).map(|case| case.service.0).collect();
                let wanted = if impossible(point, step).is_none() { takers(point, step) } else { Vec::new() };
                let wanted: BTreeSet<&str> = wanted.iter().map(|service| service.0).collect();
                assert_eq!(crashed, wanted, "{point:?} in {}", step.name);
            }
        }
    }

    #[test]
    fn every_service_that_passes_a_point_is_crashed_there_at_every_hit() {
        let cases = cases(&[1, 2, 10]);
        for point in FaultPoint::ALL {
            for hit in [1, 2, 10] {
                for service in passers(point) {
                    let is_this = |case: &Case| case.point == point && case.hit == hit && case.service == *service;
                    assert!(cases.iter().any(is_this), "{point:?} {hit} {service}");
                }
            }
        }
    }

    #[test]
    fn no_group_crashes_a_service_twice() {
        for group in groups(&all(&[1, 2, 10])) {
            let mut services: Vec<&str> = group.iter().map(|case| case.service.0).collect();
            services.sort_unstable();
            services.dedup();
            assert_eq!(services.len(), group.len());
        }
    }

    #[test]
    fn later_passes_alone_select_no_crash_per_step() {
        assert!(cases(&[2]).iter().all(|case| case.hit == 2 && case.step.is_none()));
    }
}
