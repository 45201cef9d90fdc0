//! The saga: a trip is a room and a seat, or neither. Flight takes the request, hotel books the room, flight the seat.

use std::time::Duration;

use saga::{CompensationPolicy, Event, Expired, Kind, SagaDefinition, Service, Step, StepOn, Timeout};
use uuid::Uuid;

pub const FLIGHT: Service = Service("flight");
pub const HOTEL: Service = Service("hotel");

saga::event!(TripRequested { trip: Uuid }, "trip" by [FLIGHT]);
saga::event!(RoomBooked { trip: Uuid }, "room" by [HOTEL]);
saga::event!(RoomRefused { trip: Uuid }, "room" by [HOTEL], refuses "no room is left");
saga::event!(TripBooked { trip: Uuid }, "trip" by [FLIGHT]);
saga::event!(SeatRefused { trip: Uuid }, "trip" by [FLIGHT], refuses "no seat is left");
saga::event!(TripTimedOut { trip: Uuid }, "saga" by [FLIGHT, HOTEL]);
saga::event!(TripCancelled { trip: Uuid }, "trip" by [FLIGHT]);
saga::event!(RoomReleased { trip: Uuid }, "room" by [HOTEL]);

pub static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "TripBooking",
    steps: &[
        &REQUEST_TRIP,
        &BOOK_ROOM.step,
        &BOOK_SEAT.step,
        &CANCEL_ROOMLESS_TRIP.step,
        &CANCEL_SEATLESS_TRIP.step,
        &DETECT_TIMEOUT,
        &CANCEL_LATE_TRIP.step,
        &RELEASE_ROOM.step,
    ],
    deadline: Duration::from_secs(60),
    compensation: CompensationPolicy { deadline: Duration::from_secs(60), max_attempts: 5 },
    terminal: &[TripBooked::TYPE, RoomReleased::TYPE],
};

pub static REQUEST_TRIP: Step = Step::on_request(
    0,
    "request_trip",
    FLIGHT,
    &[TripRequested::TYPE],
    Kind::Compensatable { by: &["cancel_roomless_trip", "cancel_seatless_trip", "cancel_late_trip"] },
);
pub static BOOK_ROOM: StepOn<TripRequested> = StepOn::new(
    1,
    "book_room",
    HOTEL,
    &[RoomBooked::TYPE, RoomRefused::TYPE],
    Kind::Compensatable { by: &["release_room"] },
);
pub static BOOK_SEAT: StepOn<RoomBooked> =
    StepOn::new(2, "book_seat", FLIGHT, &[TripBooked::TYPE, SeatRefused::TYPE], Kind::Pivot);
pub static CANCEL_ROOMLESS_TRIP: StepOn<RoomRefused> =
    StepOn::new(0, "cancel_roomless_trip", FLIGHT, &[TripCancelled::TYPE], Kind::Cancellation);
pub static CANCEL_SEATLESS_TRIP: StepOn<SeatRefused> =
    StepOn::new(0, "cancel_seatless_trip", FLIGHT, &[TripCancelled::TYPE], Kind::Cancellation);
pub static CANCEL_LATE_TRIP: StepOn<TripTimedOut> =
    StepOn::new(0, "cancel_late_trip", FLIGHT, &[TripCancelled::TYPE], Kind::Cancellation);
pub static RELEASE_ROOM: StepOn<TripCancelled> =
    StepOn::new(1, "release_room", HOTEL, &[RoomReleased::TYPE], Kind::Compensation);
/// Taken by the first service that detects that the deadline has passed.
pub static DETECT_TIMEOUT: Step = Step::on_deadline("detect_timeout", &[TripTimedOut::TYPE], Kind::Retriable);

impl Timeout for TripTimedOut {
    fn of(saga: Expired) -> Self {
        TripTimedOut { trip: saga.business_key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        assert_eq!(SAGA.check(), Vec::<String>::new());
    }
}
