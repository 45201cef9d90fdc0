//! What the streams tell and the database does not know, because it was set back to an earlier moment.

use async_nats::jetstream;
use axum::body::Bytes;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError,
    broker::{self, unreadable},
    options::Reach,
    pages::Pages,
    streams::published,
};

/// What a stream tells and the database does not know.
pub(crate) struct Forgotten {
    /// Which message of which stream.
    pub(crate) place: String,
    /// `OrderCreated`, for instance.
    pub(crate) event: String,
    pub(crate) body: Bytes,
}

/// The events of these kinds that were committed once, or they would be in no stream, and that the database does not know:
/// it was set back to an earlier moment. And the streams that do not reach back to that moment.
pub(crate) async fn forgotten(
    broker: &jetstream::Context,
    connection: &mut PgConnection,
    kinds: &[&str],
) -> Result<(Vec<Forgotten>, Vec<&'static str>), AuditError> {
    let (mut forgotten, mut late) = (Vec::new(), Vec::new());
    for service in published(connection, Reach::Latest).await? {
        let stream = broker::stream(broker, service.stream).await?;
        let kept_from = service.kept_from(connection).await?;
        let mut pages = Pages::open(broker, service.stream).await?;
        if !service.is_continued_by(&pages, connection).await? {
            late.push(service.stream);
        }
        while let Some(page) = pages.next().await? {
            let places = service.places(connection, &page).await?;
            let young = |id: Uuid| kept_from.is_none_or(|kept_from| id >= kept_from);
            for stored in page.unknown(&places).into_iter().filter(|stored| stored.event_id.is_some_and(young)) {
                let event = stored.subject.rsplit('.').next().unwrap_or_default().to_owned();
                if kinds.contains(&event.as_str()) {
                    let place = format!("message {} of stream {}", stored.sequence, service.stream);
                    let message = stream.get_raw_message(stored.sequence).await;
                    let body = message.map_err(unreadable(place.clone()))?.payload;
                    forgotten.push(Forgotten { place, event, body });
                }
            }
        }
    }
    Ok((forgotten, late))
}
