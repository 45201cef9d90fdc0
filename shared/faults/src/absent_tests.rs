//! A build without faults pays nothing for their points.

use std::{
    cell::Cell,
    pin::pin,
    task::{Context, Poll, Waker},
};

use crate::{FaultPoint, Faults, Guard, Pass, Subject};

#[test]
fn faults_take_no_room() {
    assert_eq!(size_of::<Faults>(), 0);
}

#[test]
fn a_pass_is_over_at_once_and_nobody_asks_what_it_is_about() {
    let faults = Faults::none();
    let asked = Cell::new(false);
    for point in FaultPoint::ALL {
        let subject = || {
            asked.set(true);
            Subject::default()
        };
        let mut pass = pin!(faults.at(point, subject));
        let polled = pass.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Ok(Pass::Unharmed)), "{point:?}");
    }
    assert!(!asked.get());
}

#[test]
fn the_compiler_knows_that_nothing_is_armed_and_no_mechanism_is_off() {
    const FAULTS: Faults = Faults::none();
    const ARMED: bool = FAULTS.is_armed();
    const WITHOUT: [bool; 2] = [FAULTS.without(Guard::Outbox), FAULTS.without(Guard::Inbox)];
    assert_eq!((ARMED, WITHOUT), (false, [false, false]));
    assert!(!Faults::default().concerns(&FaultPoint::ALL, Subject::default));
}
