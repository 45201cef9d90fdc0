//! Events that are in the streams and not in the database, because it was restored to an earlier moment.

use async_nats::jetstream;
use axum::body::Bytes;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError, Options,
    broker::{self, unreadable},
    pages::Pages,
    streams::published,
};

/// An event that is in a stream and not in the database.
pub(crate) struct Forgotten {
    /// The message and its stream, for error texts.
    pub(crate) place: String,
    /// `OrderCreated`, for instance.
    pub(crate) event: String,
    pub(crate) body: Bytes,
}

/// The events of these kinds that are in a stream, so they were committed once, and that the restored database does not know;
/// and the streams that do not reach back to the restored moment.
pub(crate) async fn forgotten(
    broker: &jetstream::Context,
    connection: &mut PgConnection,
    kinds: &[&str],
) -> Result<(Vec<Forgotten>, Vec<&'static str>), AuditError> {
    let (mut forgotten, mut late) = (Vec::new(), Vec::new());
    for service in published(connection, &Options::default()).await? {
        let stream = broker::stream(broker, service.stream).await?;
        let kept_from = service.kept_from(connection).await?;
        let mut pages = Pages::open(broker, service.stream).await?;
        if !service.is_continued_by(&pages, connection).await? {
            late.push(service.stream);
        }
        while let Some(page) = pages.next().await? {
            let places = service.places(connection, &page).await?;
            let retained = |id: Uuid| kept_from.is_none_or(|kept_from| id >= kept_from);
            for stored in page.unknown(&places).into_iter().filter(|stored| stored.event_id.is_some_and(retained)) {
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
