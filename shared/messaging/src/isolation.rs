//! A server of a cluster that lost the others keeps its clients, and answers none of their requests to JetStream. A client that
//! does not leave it waits for its return.

use std::time::Duration;

use async_nats::{Client, connection::State};
use tokio::time::{Instant, sleep, timeout};

use crate::bus::BROKER_RESPONSE_TIMEOUT;

/// An election looks the same: nats-server waits 4 to 9 s for a lost leader. This time begins with the first failure, a request
/// that was not answered for 2 s.
const ELECTION: Duration = Duration::from_secs(8);
/// The next server is left after this time.
const CHOICE: Duration = Duration::from_secs(3);

/// Whether the server of this connection seems to be cut off from the others.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    leave_at: Option<Instant>,
}

impl Isolation {
    /// JetStream has answered.
    pub(crate) fn is_over(&mut self) {
        self.leave_at = None;
    }

    /// JetStream has failed. Connects to another server, if there are several and it has failed for longer than an election takes.
    pub(crate) async fn is_possible(&mut self, client: &Client) {
        let now = Instant::now();
        // Long ago it was another failure.
        let at = self.leave_at.filter(|at| now < *at + ELECTION).unwrap_or(now + ELECTION);
        self.leave_at = Some(at);
        if now >= at {
            leave_server(client).await;
            self.leave_at = Some(Instant::now() + CHOICE);
        }
    }
}

async fn leave_server(client: &Client) {
    let Ok(servers) = client.server_pool().await else { return };
    if client.connection_state() != State::Connected || servers.len() < 2 {
        return;
    }
    let left = client.server_info();
    tracing::warn!(server = left.server_name, "the server fails for longer than an election takes; leaving it");
    let connection = || {
        let server = client.server_info();
        (server.server_id, server.client_id)
    };
    let leave = async {
        // The client takes one that has ever failed only if it can connect to no other, and never forgets. A server that was not
        // in its list just before has not failed.
        let servers: Vec<_> = servers.into_iter().map(|server| server.addr).collect();
        for list in [&servers[..1], &servers] {
            if client.set_server_pool(list).await.is_err() {
                return;
            }
        }
        // It may choose the same one again.
        while connection().0 == left.server_id {
            let before = connection();
            if client.force_reconnect().await.is_err() {
                return;
            }
            while connection() == before {
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    // Later the client connects to whichever answers first.
    let _ = timeout(BROKER_RESPONSE_TIMEOUT, leave).await;
}

#[cfg(test)]
mod tests {
    use testkit::{Nats, eventually};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_server_is_left_for_those_that_once_failed() {
        let mut servers = [Nats::start().await.unwrap(), Nats::start().await.unwrap(), Nats::start().await.unwrap()];
        let client = async_nats::connect(servers.each_ref().map(Nats::url).to_vec()).await.unwrap();
        let left = client.server_info().server_id;
        let port = client.server_info().port;
        servers.iter_mut().filter(|server| server.port() != port).for_each(Nats::kill);
        let both_failed = async || {
            client.force_reconnect().await.unwrap();
            client.server_pool().await.unwrap().iter().filter(|server| server.failed_attempts > 0).count() == 2
        };
        eventually(LIMIT, both_failed).await.unwrap();
        for server in servers.iter_mut().filter(|server| server.port() != port) {
            server.start_again().await.unwrap();
        }
        let has_left = async || {
            leave_server(&client).await;
            client.server_info().server_id != left
        };
        eventually(LIMIT, has_left).await.unwrap();
        assert_eq!(client.server_pool().await.unwrap().len(), servers.len());
    }
}
