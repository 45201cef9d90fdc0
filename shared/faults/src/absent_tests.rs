//! Fault points cost nothing in a build without faults.

use std::{
    cell::Cell,
    pin::pin,
    task::{Context, Poll, Waker},
};

use crate::{FaultPoint, Faults, Guard, Pass, Subject};

#[test]
fn faults_have_size_zero() {
    assert_eq!(size_of::<Faults>(), 0);
}

#[test]
fn a_pass_returns_at_once_without_its_subject() {
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
fn nothing_is_armed_at_compile_time() {
    const FAULTS: Faults = Faults::none();
    const ARMED: bool = FAULTS.is_armed();
    const WITHOUT: [bool; 2] = [FAULTS.without(Guard::Outbox), FAULTS.without(Guard::Inbox)];
    assert_eq!((ARMED, WITHOUT), (false, [false, false]));
    assert!(!Faults::default().concerns(&FaultPoint::ALL, Subject::default));
}
