//! Which crashes there are: which service passes which point, in which step.

use contracts::{PAYMENT, SERVICES, catalogue, order_fulfillment};
use faults::FaultPoint;
use saga::{Service, Step};

/// One crash: where, at which pass, and whose process.
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
    /// The step by which a fault can be limited: whoever works on an event says which step that is.
    pub(super) fn step_of_event(&self) -> Option<&'static str> {
        self.step.filter(|step| step.consumes().is_some()).map(|step| step.name)
    }
}

/// All crashes, in groups that share one settling and one audit: of no service twice, for its next start might mend what
/// is wrong before anybody looks. At a point that knows the step, the crashes in each step are those at the 1st pass.
pub(super) fn groups(points: &[FaultPoint], hits: &[u32]) -> Vec<Vec<Case>> {
    let mut groups = Vec::new();
    for point in points.iter().copied() {
        let mut cases = Vec::new();
        for step in steps_at(point, hits) {
            let case = |service| Case { point, hit: 1, step: Some(step), service };
            cases.extend(takers(step).into_iter().map(case));
        }
        for hit in hits.iter().copied().filter(|hit| *hit != 1 || !point.knows_step()) {
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

/// The steps in which this point has to be hit.
pub(super) fn steps_at(point: FaultPoint, hits: &[u32]) -> impl Iterator<Item = &'static Step> {
    let stepwise = point.knows_step() && hits.contains(&1);
    steps().filter(move |step| stepwise && impossible(point, step).is_none())
}

/// Every step that anybody takes.
pub(super) fn steps() -> impl Iterator<Item = &'static Step> {
    order_fulfillment::SAGA.steps.iter().chain(catalogue::PROJECTIONS).copied()
}

/// Why the step cannot be crashed at this point, which knows the step; none when it has to be.
pub(super) fn impossible(point: FaultPoint, step: &Step) -> Option<&'static str> {
    let of_transactions = matches!(point, FaultPoint::BeforeCommit | FaultPoint::AfterCommitBeforePublish);
    let possible = of_transactions || step.consumes().is_some();
    (!possible).then_some("no event sets the step in motion: nothing is delivered, claimed or acknowledged")
}

/// Who takes the step.
fn takers(step: &Step) -> Vec<Service> {
    step.service.map_or_else(|| SERVICES.to_vec(), |service| vec![service])
}

/// Who passes the point.
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

    fn cases(hits: &[u32]) -> Vec<Case> {
        groups(&FaultPoint::ALL, hits).concat()
    }

    #[test]
    fn at_a_point_that_knows_the_step_every_possible_step_is_crashed_in_whoever_takes_it() {
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
        for group in groups(&FaultPoint::ALL, &[1, 2, 10]) {
            let mut services: Vec<&str> = group.iter().map(|case| case.service.0).collect();
            services.sort_unstable();
            services.dedup();
            assert_eq!(services.len(), group.len());
        }
    }

    #[test]
    fn who_asks_for_later_passes_only_gets_no_crash_in_each_step() {
        assert!(cases(&[2]).iter().all(|case| case.hit == 2 && case.step.is_none()));
    }
}
