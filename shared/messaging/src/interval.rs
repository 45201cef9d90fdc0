//! Durations as parameters of SQL.

use std::time::Duration;

use sqlx::postgres::types::PgInterval;

/// A duration as a PostgreSQL interval, at most some 290,000 years.
pub fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}
