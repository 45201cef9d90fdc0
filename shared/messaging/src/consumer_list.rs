//! The consumers of a stream, as the broker describes them.

use async_nats::jetstream::{
    Context, Error, ErrorCode, consumer,
    context::{RequestError, RequestErrorKind},
    response::Response,
};
use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::json;

/// Those consumers of a stream with these names that exist. A cluster answers a list only after all consumers of the stream have
/// answered, also those of others that a lost server had: so each is asked by itself.
///
/// # Errors
/// The broker does not answer, or has no such stream.
pub(crate) async fn named(
    js: &Context,
    stream: &str,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<consumer::Info>, RequestError> {
    let infos = names.into_iter().map(async |name| {
        match js.request(format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await? {
            Response::Ok(info) => Ok(Some(info)),
            Response::Err { error } if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND => Ok(None),
            Response::Err { error } => Err(refused(error)),
        }
    });
    Ok(try_join_all(infos).await?.into_iter().flatten().collect())
}

#[derive(Deserialize)]
struct Page {
    total: usize,
    consumers: Option<Vec<String>>,
}

/// The names of all consumers of a stream.
///
/// # Errors
/// The broker does not answer, or has no such stream.
pub(crate) async fn names(js: &Context, stream: &str) -> Result<Vec<String>, RequestError> {
    let mut found = Vec::new();
    loop {
        let page = js.request(format!("CONSUMER.NAMES.{stream}"), &json!({ "offset": found.len() })).await?;
        let Page { total, consumers } = match page {
            Response::Ok(page) => page,
            Response::Err { error } => return Err(refused(error)),
        };
        let consumers = consumers.unwrap_or_default();
        let nothing_more = consumers.is_empty();
        found.extend(consumers);
        if nothing_more || found.len() >= total {
            return Ok(found);
        }
    }
}

fn refused(error: Error) -> RequestError {
    RequestError::with_source(RequestErrorKind::Other, error)
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::{self, consumer::pull, stream};
    use testkit::Nats;

    use super::*;

    #[tokio::test]
    async fn consumers_are_found_by_their_names() -> Result<(), async_nats::Error> {
        let nats = Nats::start().await?;
        let js = jetstream::new(async_nats::connect(nats.url()).await?);
        let stream = js.create_stream(stream::Config { name: "ORDER".to_owned(), ..Default::default() }).await?;
        for name in ["first", "second"] {
            let wanted = pull::Config { durable_name: Some(name.to_owned()), ..Default::default() };
            stream.create_consumer(wanted).await?;
        }
        assert_eq!(names(&js, "ORDER").await?, ["first", "second"]);
        assert!(names(&js, "NONE").await.is_err());

        let found = named(&js, "ORDER", ["second".to_owned(), "third".to_owned()]).await?;
        assert_eq!(found.iter().map(|consumer| consumer.name.as_str()).collect::<Vec<_>>(), ["second"]);
        assert!(named(&js, "NONE", ["first".to_owned()]).await.is_err());
        Ok(())
    }
}
