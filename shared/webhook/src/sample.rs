//! The gauges that one replica of a service reads.

use messaging::sample::{Reading, Sampled};
use sqlx::PgPool;

pub const SAMPLED: &[Sampled] = &[
    Sampled::new("webhook_parked_events", "Events that the webhook refused, and that wait for an operator", &[]),
    Sampled::new("webhook_waiting_events", "Events that are held back and will be posted to the webhook again", &[]),
    Sampled::new(
        "webhook_oldest_age_seconds",
        "Age of the oldest published event that the webhook has not accepted; 0 when there is none",
        &[],
    ),
    Sampled::new("webhook_lease_held", "1 while some replica posts to the webhook", &[]),
];

pub async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    let state = crate::state(pool).await?;
    let values = [
        state.parked as f64,
        state.waiting as f64,
        state.oldest_seconds.unwrap_or_default().max(0.0),
        f64::from(u8::from(state.active)),
    ];
    let reading = |(gauge, value): (&Sampled, f64)| Reading { name: gauge.name.to_owned(), labels: Vec::new(), value };
    Ok(SAMPLED.iter().zip(values).map(reading).collect())
}
