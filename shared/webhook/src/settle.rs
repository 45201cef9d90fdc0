//! What follows from the endpoint's answer to a batch: how far the position moves, and which events are held back. Pure.

use std::collections::HashSet;

use messaging::{
    outbox::PublishedRow,
    relay::target::{Published, Stop},
};
use uuid::Uuid;

use crate::Obstacle;

/// Type and id.
pub(crate) type Aggregate = (String, String);

/// An event that is held back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) row: &'a PublishedRow,
    pub(crate) why: Why<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why<'a> {
    /// An earlier event of its aggregate is held back.
    Follows,
    /// It may be accepted later.
    Failed(&'a str),
    Refused(&'a str),
}

#[derive(Debug, Default)]
pub(crate) struct Settled<'a> {
    /// The last event up to which all are accepted or held back.
    pub(crate) position: Option<i64>,
    pub(crate) held: Vec<Held<'a>>,
}

pub(crate) fn aggregate(row: &PublishedRow) -> Aggregate {
    (row.aggregate_type.clone(), row.event.aggregate_id.clone())
}

/// `rows` are the next events; of those in `blocked` an earlier event is held back already; `accepted` are all that were accepted.
pub(crate) fn settle<'a>(
    rows: &'a [PublishedRow],
    blocked: &HashSet<Aggregate>,
    accepted: &HashSet<Uuid>,
    stops: &'a [Stop<Obstacle>],
) -> Settled<'a> {
    let mut settled = Settled::default();
    let mut blocked = blocked.clone();
    for row in rows {
        let aggregate = aggregate(row);
        let why = if blocked.contains(&aggregate) {
            Some(Why::Follows)
        } else if accepted.contains(&row.event.event_id) {
            None
        } else {
            // Without an answer about this event, nothing is known of the later ones of its aggregate either.
            let Some(why) = stops.iter().find_map(|stop| about(row.event.event_id, stop)) else { break };
            Some(why)
        };
        settled.position = Some(row.ordinal);
        if let Some(why) = why {
            settled.held.push(Held { row, why });
            blocked.insert(aggregate);
        }
    }
    settled
}

/// Why the event is held back, if the answer is about it.
fn about<'a>(id: Uuid, stop: &'a Stop<Obstacle>) -> Option<Why<'a>> {
    match stop {
        Stop::Refused { event_id, error } if *event_id == id => Some(Why::Refused(error)),
        Stop::NotNow { event_id, obstacle: Obstacle::Failed(error) } if *event_id == id => Some(Why::Failed(error)),
        _ => None,
    }
}

/// Why the endpoint is away, if it is.
pub(crate) fn away<R>(published: &Published<R, Obstacle>) -> Option<&str> {
    published.stops.iter().find_map(|stop| match stop {
        Stop::NotNow { obstacle: Obstacle::Away(error), .. } => Some(error.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use messaging::relay::target::PendingRow;
    use time::OffsetDateTime;

    use super::*;

    /// Events of these aggregates, a letter each, with the ordinals and ids 1, 2, 3 ...
    fn rows(aggregates: &str) -> Vec<PublishedRow> {
        let event = |id: u128, aggregate: char| PendingRow {
            event_id: Uuid::from_u128(id),
            position: 0,
            aggregate_id: aggregate.to_string(),
            aggregate_sequence: 1,
            event_type: String::new(),
            subject: String::new(),
            headers: String::new(),
            payload: String::new(),
            saga_id: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            republication: 0,
            attempts: 0,
        };
        let row = |(ordinal, aggregate): (i64, char)| PublishedRow {
            ordinal,
            aggregate_type: "letter".to_owned(),
            event: event(ordinal.unsigned_abs().into(), aggregate),
        };
        (1..).zip(aggregates.chars()).map(row).collect()
    }

    fn ids(of: &[u128]) -> HashSet<Uuid> {
        of.iter().copied().map(Uuid::from_u128).collect()
    }

    fn refused(id: u128) -> Stop<Obstacle> {
        Stop::Refused { event_id: Uuid::from_u128(id), error: "422".to_owned() }
    }

    fn not_now(id: u128, obstacle: fn(String) -> Obstacle) -> Stop<Obstacle> {
        Stop::NotNow { event_id: Uuid::from_u128(id), obstacle: obstacle("500".to_owned()) }
    }

    /// The position, and the held events: `!` refused, `?` failed, `+` following.
    fn outcome(aggregates: &str, blocked: &str, accepted: &[u128], stops: &[Stop<Obstacle>]) -> (Option<i64>, String) {
        let blocked = blocked.chars().map(|b| ("letter".to_owned(), b.to_string())).collect();
        let rows = rows(aggregates);
        let settled = settle(&rows, &blocked, &ids(accepted), stops);
        let sign = |why| match why {
            Why::Follows => '+',
            Why::Failed(_) => '?',
            Why::Refused(_) => '!',
        };
        (settled.position, settled.held.iter().map(|held| format!("{}{}", held.row.ordinal, sign(held.why))).collect())
    }

    #[test]
    fn the_position_moves_over_accepted_events_only_up_to_a_gap() {
        assert_eq!(outcome("abc", "", &[1, 2, 3], &[]), (Some(3), String::new()));
        assert_eq!(outcome("abc", "", &[1, 3], &[]), (Some(1), String::new()));
        assert_eq!(outcome("abc", "", &[2, 3], &[not_now(1, Obstacle::Away)]), (None, String::new()));
        assert_eq!(outcome("", "", &[], &[]), (None, String::new()));
    }

    #[test]
    fn a_refused_or_failed_event_is_held_with_its_followers_and_no_others() {
        assert_eq!(outcome("abab", "", &[2, 4], &[refused(1)]), (Some(4), "1!3+".to_owned()));
        assert_eq!(outcome("abab", "", &[2, 4], &[not_now(1, Obstacle::Failed)]), (Some(4), "1?3+".to_owned()));
        assert_eq!(outcome("abab", "a", &[2, 4], &[]), (Some(4), "1+3+".to_owned()));
        // The third was not offered because the endpoint went away: it is neither accepted nor held.
        assert_eq!(outcome("abca", "", &[2], &[refused(1), not_now(3, Obstacle::Away)]), (Some(2), "1!".to_owned()));
    }
}
