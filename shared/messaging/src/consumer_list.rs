//! The consumers of a stream, as the broker describes them.

use async_nats::jetstream::{
    Context, consumer,
    context::{RequestError, RequestErrorKind},
    response::Response,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Page {
    total: usize,
    /// nats-server 2.9 has `null` for a consumer that is being deleted at that moment, which the client library cannot read.
    consumers: Option<Vec<Option<consumer::Info>>>,
}

/// All consumers of a stream except those that are being deleted.
///
/// # Errors
/// The broker does not answer, or has no such stream.
pub(crate) async fn of_stream(js: &Context, stream: &str) -> Result<Vec<consumer::Info>, RequestError> {
    let mut found = Vec::new();
    let mut seen = 0;
    loop {
        let page = js.request(format!("CONSUMER.LIST.{stream}"), &json!({ "offset": seen })).await?;
        let Page { total, consumers } = match page {
            Response::Ok(page) => page,
            Response::Err { error } => return Err(RequestError::with_source(RequestErrorKind::Other, error)),
        };
        let consumers = consumers.unwrap_or_default();
        let nothing_more = consumers.is_empty();
        seen += consumers.len();
        found.extend(consumers.into_iter().flatten());
        if nothing_more || seen >= total {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::{self, consumer::pull, stream};
    use futures_util::StreamExt as _;
    use serde_json::Value;
    use testkit::Nats;

    use super::*;

    #[tokio::test]
    async fn consumers_being_deleted_are_left_out_on_each_page() -> Result<(), async_nats::Error> {
        let nats = Nats::start().await?;
        let client = async_nats::connect(nats.url()).await?;
        let real = jetstream::new(client.clone());
        let stream = real.create_stream(stream::Config { name: "ORDER".to_owned(), ..Default::default() }).await?;
        for name in ["first", "second"] {
            let wanted = pull::Config { durable_name: Some(name.to_owned()), ..Default::default() };
            stream.create_consumer(wanted).await?;
        }
        let found = of_stream(&real, "ORDER").await?;
        assert_eq!(found.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert!(of_stream(&real, "NONE").await.is_err());

        // Two consumers per page; the first of each is being deleted.
        let page: Value = real.request("CONSUMER.LIST.ORDER", &json!({})).await?;
        let first = &page["consumers"][0];
        let mut requests = client.subscribe("odd.CONSUMER.LIST.ORDER").await?;
        let odd = jetstream::with_prefix(client.clone(), "odd");
        let answers = async {
            while let Some(request) = requests.next().await {
                let offset = &serde_json::from_slice::<Value>(&request.payload)?["offset"];
                let page = json!({ "total": 4, "offset": offset, "limit": 2, "consumers": [null, first] });
                let Some(asked_by) = request.reply else { continue };
                client.publish(asked_by, serde_json::to_vec(&page)?.into()).await?;
            }
            Ok::<_, async_nats::Error>(())
        };
        let listed = tokio::select! { listed = of_stream(&odd, "ORDER") => listed?, ended = answers => return ended };
        assert_eq!(listed.len(), 2);
        Ok(())
    }
}
