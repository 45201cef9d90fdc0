//! The invariants that hold when every trip has ended. Each query counts violations.

use sqlx::PgPool;

const INVARIANTS: [(&str, &str); 7] = [
    (
        "a trip is booked if and only if its saga is completed, and cancelled if and only if it is compensated",
        "select count(*) from flight.trip t left join saga.saga_instance s on s.saga_id = t.trip
        where (t.status, s.status) is distinct from ('BOOKED', 'COMPLETED')
            and (t.status, s.status) is distinct from ('CANCELLED', 'COMPENSATED')",
    ),
    (
        "a room is held for every booked trip, and for no other",
        "select count(*) from hotel.room r full join (select * from flight.trip where status = 'BOOKED') t using (trip)
        where r.trip is null or t.trip is null",
    ),
    (
        "rooms and seats, left or taken, are as many as there were",
        "select count(*) from hotel.hotel, flight.plane
        where rooms_left + (select count(*) from hotel.room) <> 5 * (select count(*) / 6 from flight.trip)
            or seats_left + (select count(*) from flight.trip where status = 'BOOKED') <> 4 * (select count(*) / 6 from flight.trip)",
    ),
    (
        "no step is done twice for a trip",
        "select count(*) from (
            select from saga.saga_step where status <> 'SKIPPED' group by saga_id, step having count(*) > 1
        ) as twice",
    ),
    ("every event is published", "select (select count(*) from flight.outbox) + (select count(*) from hotel.outbox)"),
    (
        "every delivery has its effect once",
        "select count(*) from (
            select from (select * from flight.inbox union all select * from hotel.inbox) as inbox
            group by consumer, event_id having count(*) > 1
        ) as twice",
    ),
    (
        "there are no dead letters",
        "select (select count(*) from flight.dead_letter) + (select count(*) from hotel.dead_letter)",
    ),
];

/// The violated invariants, with the number of violations.
pub async fn audit(pool: &PgPool) -> anyhow::Result<Vec<String>> {
    let mut violated = Vec::new();
    for (invariant, query) in INVARIANTS {
        let found: i64 = sqlx::query_scalar(query).fetch_one(pool).await?;
        if found > 0 {
            violated.push(format!("{invariant}: {found} violations"));
        }
    }
    Ok(violated)
}
