//! What an answer is worth, of 100 points. Without the right place and cause it is worth next to nothing, so guessing does not pay.

use std::{collections::HashSet, fmt, time::Duration};

use uuid::Uuid;

use super::table::{Drill, vocabulary};

/// How many orders an answer has to name; all of them, if there are fewer.
const NAMED: usize = 3;
/// With a recovery within this time nothing is deducted.
const FAST: Duration = Duration::from_secs(180);
/// After this time the recovery is worth nothing.
const SLOW: Duration = Duration::from_secs(900);

/// What the player says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) place: String,
    pub(super) cause: String,
    pub(super) orders: HashSet<Uuid>,
}

impl Answer {
    /// `PLACE CAUSE ORDER...`, separated by spaces or commas.
    ///
    /// # Errors
    /// What is not understood.
    pub(super) fn parse(line: &str) -> Result<Answer, String> {
        let mut words = line.split([' ', ',', '\t']).filter(|word| !word.is_empty());
        let (places, causes) = vocabulary();
        let place = words.next().ok_or("An answer is: PLACE CAUSE ORDER...")?;
        if !places.iter().any(|known| known == place) {
            return Err(format!("{place} is no place."));
        }
        let cause = words.next().ok_or("The cause is missing.")?;
        if !causes.contains(&cause) {
            return Err(format!("{cause} is no cause."));
        }
        let order = |word: &str| word.parse().map_err(|_| format!("{word} is no order's id."));
        let orders = words.map(order).collect::<Result<_, _>>()?;
        Ok(Answer { place: place.to_owned(), cause: cause.to_owned(), orders })
    }

    pub(super) fn is_right(&self, drill: &Drill) -> bool {
        self.place == drill.place && self.cause == drill.cause
    }
}

/// Points: 40 for place and cause, 20 for the orders, 20 for the time, 20 for a clean audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Score {
    diagnosis: u32,
    orders: u32,
    time: u32,
    audit: u32,
}

impl Score {
    /// `recovered` is the time from the damage to a clean audit; `None` where the drill itself had to undo it.
    pub(super) fn of(drill: &Drill, answer: &Answer, concerned: &HashSet<Uuid>, recovered: Option<Duration>) -> Score {
        if !answer.is_right(drill) {
            let half = answer.place == drill.place || answer.cause == drill.cause;
            return Score { diagnosis: if half { 5 } else { 0 }, orders: 0, time: 0, audit: 0 };
        }
        let right = answer.orders.intersection(concerned).count();
        let complete = right == answer.orders.len() && right > 0 && right >= NAMED.min(concerned.len());
        Score {
            diagnosis: 40,
            orders: if complete { 20 } else { 0 },
            time: recovered.map_or(0, points_of_time),
            audit: if recovered.is_some() { 20 } else { 0 },
        }
    }

    pub(super) fn total(self) -> u32 {
        self.diagnosis + self.orders + self.time + self.audit
    }
}

fn points_of_time(time: Duration) -> u32 {
    let left = SLOW.saturating_sub(time).as_secs_f64() / (SLOW - FAST).as_secs_f64();
    (20.0 * left.min(1.0)) as u32
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Score { diagnosis, orders, time, audit } = self;
        write!(
            f,
            "{} of 100: diagnosis {diagnosis} of 40, orders {orders} of 20, time {time} of 20, audit {audit} of 20",
            self.total()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::table::DRILLS, *};

    fn answer(place: &str, cause: &str, orders: &[Uuid]) -> Answer {
        Answer { place: place.to_owned(), cause: cause.to_owned(), orders: orders.iter().copied().collect() }
    }

    #[test]
    fn answers_are_read_or_refused() {
        let order = Uuid::from_u128(7);
        let line = format!("relay_order, stream_full  {order},");
        assert_eq!(Answer::parse(&line), Ok(answer("relay_order", "stream_full", &[order])));
        for wrong in ["", "relay_order", "here stream_full", "relay_order because", "relay_order stream_full 7"] {
            assert!(Answer::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn points_are_for_what_is_right() {
        let drill = &DRILLS[0];
        let ids = [1, 2, 3, 4].map(Uuid::from_u128);
        let concerned: HashSet<_> = ids[..3].iter().copied().collect();
        let total =
            |answer: Answer, seconds| Score::of(drill, &answer, &concerned, Some(Duration::from_secs(seconds))).total();
        assert_eq!(total(answer(drill.place, drill.cause, &ids[..3]), 60), 100);
        assert_eq!(total(answer(drill.place, drill.cause, &ids[..2]), 60), 80);
        assert_eq!(total(answer(drill.place, drill.cause, &ids), 540), 70);
        assert_eq!(total(answer(drill.place, drill.cause, &[]), 9_000), 60);
        assert_eq!(total(answer(drill.place, "relay_paused", &ids[..3]), 60), 5);
        assert_eq!(Score::of(drill, &answer(drill.place, drill.cause, &ids[..3]), &concerned, None).total(), 60);
    }

    /// All answers, against all drills. Who answers without looking does not mend, and names no order.
    #[test]
    fn guessing_does_not_pay() {
        let (places, causes) = vocabulary();
        let worth = |place: &str, cause: &str| -> f64 {
            let answer = answer(place, cause, &[Uuid::nil()]);
            let by_chance = |drill| Score::of(drill, &answer, &HashSet::new(), Some(Duration::ZERO)).total();
            DRILLS.iter().map(|drill| f64::from(by_chance(drill))).sum::<f64>() / DRILLS.len() as f64
        };
        let all: Vec<f64> = places.iter().flat_map(|p| causes.iter().map(|c| worth(p, c))).collect();
        let (mean, best) = (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max));
        assert!(mean < 3.0 && best < 10.0, "on average {mean}, at best {best}");
    }
}
