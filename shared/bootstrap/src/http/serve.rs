//! The accept loop. `axum::serve` limits neither the time to read headers, nor connections, nor draining, so this replaces it:
//! HTTP/1.1 with a limit of connections and a drain timeout.

use std::{future::Future, sync::Arc, time::Duration};

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::config::HttpArgs;

/// The read buffer of a connection, in bytes; larger request headers are answered 431. hyper's own limit of 400 KiB would let a
/// thousand connections use 400 MiB. hyper checks the limit between two reads, so up to twice as much may pass, and the shell
/// checks again.
pub(super) const READ_AHEAD: usize = 64 * 1024;

/// Serves the router that `app` returns for each request, until `stop`; then accepts no more connections, lets requests in
/// progress finish within the drain timeout and drops the rest.
pub async fn serve<A>(listener: TcpListener, app: A, limits: HttpArgs, stop: CancellationToken)
where
    A: Fn() -> Router + Clone + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(limits.max_connections));
    let graceful = GracefulShutdown::new();
    // Cancelled when this function returns or is dropped: no connection outlives its server.
    let end = CancellationToken::new();
    let _end_all = end.clone().drop_guard();
    while let Some((stream, slot)) = next_connection(&listener, &slots, &stop).await {
        let app = app.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| app().oneshot(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_read_timeout)
            .max_buf_size(READ_AHEAD)
            .serve_connection(TokioIo::new(stream), service);
        #[expect(clippy::disallowed_methods, reason = "`graceful` waits for it, `end` ends it")]
        tokio::spawn(until_end(graceful.watch(connection), end.clone(), slot));
    }
    drop(listener);
    if timeout(limits.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(limit = ?limits.drain_timeout, "requests still in progress are dropped");
    }
}

/// The next connection with its slot; `None` once `stop` is cancelled. Without a free slot nothing is accepted, so
/// further clients wait in the listen queue.
async fn next_connection(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accepted = async {
        let slot = slots.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Responses are small and complete; waiting to fill a packet only delays them.
                    let _ = stream.set_nodelay(true);
                    return Some((stream, slot));
                }
                Err(error) => {
                    // Typically out of file descriptors: wait until other connections are closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        connection = accepted => connection,
    }
}

async fn until_end<C>(connection: C, end: CancellationToken, _slot: OwnedSemaphorePermit)
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    tokio::select! {
        result = connection => if let Err(error) = result {
            // A disconnect or an invalid request of the client is not a failure of the server.
            tracing::debug!(%error, "connection ended early");
        },
        () = end.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::config::parsed;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    async fn started(
        app: Router,
        limits: HttpArgs,
    ) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, move || app.clone(), limits, stop.clone()));
        (address, stop, server)
    }

    fn limits() -> HttpArgs {
        parsed(&["--max-connections", "2", "--header-read-timeout", "100ms", "--drain-timeout", "5s"])
    }

    async fn read_all(mut stream: TcpStream) -> String {
        let mut text = String::new();
        timeout(Duration::from_secs(5), stream.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_headers_is_disconnected() {
        let (address, _stop, _server) = started(Router::new(), limits()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost").await.unwrap();
        let text = read_all(stream).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }

    #[tokio::test]
    async fn after_stop_requests_in_progress_are_answered() {
        let entered = Arc::new(tokio::sync::Notify::new());
        let leave = Arc::new(tokio::sync::Notify::new());
        let app = Router::new().route(
            "/",
            get({
                let (entered, leave) = (entered.clone(), leave.clone());
                || async move {
                    entered.notify_one();
                    leave.notified().await;
                    "done"
                }
            }),
        );
        let (address, stop, server) = started(app, limits()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        entered.notified().await;
        stop.cancel();
        leave.notify_one();
        assert!(read_all(stream).await.ends_with("done"));
        timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn an_endless_request_is_dropped_after_the_drain_timeout() {
        let app = Router::new().route("/", get(std::future::pending::<&'static str>));
        let short = HttpArgs { drain_timeout: Duration::from_millis(50), ..limits() };
        let (address, stop, server) = started(app, short).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        stop.cancel();
        timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    }
}
