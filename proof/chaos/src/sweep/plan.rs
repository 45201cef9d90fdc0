//! The plan of crashes: which service passes which point, in which step.

use contracts::{PAYMENT, SERVICES, catalogue, order_fulfillment};
use faults::FaultPoint;
use saga::{Service, Step};

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
        self.points.iter().copied().filter(|point| self.steps.is_empty() || point.knows_step())
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
    /// The step as a scope of the fault, which exists only where an event is processed.
    pub(super) fn step_of_event(&self) -> Option<&'static str> {
        self.step.filter(|step| step.consumes().is_some()).map(|step| step.name)
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
            cases.extend(takers(step).into_iter().map(case));
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

/// Every step of the saga and of the projections.
pub(super) fn steps() -> impl Iterator<Item = &'static Step> {
    order_fulfillment::SAGA.steps.iter().chain(catalogue::PROJECTIONS).copied()
}

/// Why no crash is possible in the step at this point, which knows the step; none when it is possible.
pub(super) fn impossible(point: FaultPoint, step: &Step) -> Option<&'static str> {
    let of_transactions = matches!(point, FaultPoint::BeforeCommit | FaultPoint::AfterCommitBeforePublish);
    let possible = of_transactions || step.consumes().is_some();
    (!possible).then_some("no event triggers the step: nothing is delivered, claimed or acknowledged")
}

/// The services that take the step.
fn takers(step: &Step) -> Vec<Service> {
    step.service.map_or_else(|| SERVICES.to_vec(), |service| vec![service])
}

/// The services that pass the point.
fn passers(point: FaultPoint) -> &'static [Service] {
    match point {
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => &[PAYMENT],
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
        let selection = Selection { steps: &["confirm_order"], ..all(&[1, 2]) };
        let cases = groups(&selection).concat();
        assert_eq!(cases.len(), FaultPoint::ALL.into_iter().filter(|point| point.knows_step()).count());
        assert!(cases.iter().all(|case| case.hit == 1 && case.step.is_some_and(|step| step.name == "confirm_order")));
    }

    #[test]
    fn every_possible_step_is_crashed_in_each_service_that_takes_it() {
        let cases = cases(&[1, 2, 10]);
        for point in FaultPoint::ALL.into_iter().filter(|point| point.knows_step()) {
            for step in steps() {
                let of_this = |case: &&Case| case.point == point && case.step.is_some_and(|s| s.name == step.name);
                let crashed: BTreeSet<&str> = cases.iter().filter(of_this).map(|case| case.service.0).collect();
                let wanted = if impossible(point, step).is_none() { takers(step) } else { Vec::new() };
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
