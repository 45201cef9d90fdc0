//! A server of a cluster that lost the others keeps its clients, and answers none of their requests to JetStream. A client that
//! does not leave it waits for its return.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::{Client, connection::State};
use tokio::time::{Instant, sleep, timeout};

use crate::bus::BROKER_RESPONSE_TIMEOUT;

/// An election looks the same: nats-server waits 4 to 9 s for a lost leader. This time begins with the first failure, a request
/// that was not answered for 2 s.
const ELECTION: Duration = Duration::from_secs(8);
/// The next server is left after this time, the one after it after twice this time, and so on: what fails at every server, such as a
/// stream without its only replica, has its clients change servers less and less often.
const CHOICE: Duration = Duration::from_secs(3);
const LONGEST_CHOICE: Duration = Duration::from_secs(15);

/// Whether the server of a connection seems to be cut off from the others, as all see it that use the connection: a relay that
/// publishes nothing, or stands by, notices nothing.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    failing: Mutex<Option<Failing>>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    leave_at: Instant,
    /// The time at the next server.
    choice: Duration,
}

impl Isolation {
    /// JetStream has acknowledged a message, a consumer has begun to work, or the topology is reconciled.
    pub(crate) fn is_over(&self) {
        *self.failing() = None;
    }

    /// JetStream has failed. Connects to another server, if there are several and this one has failed for longer than an election
    /// takes. Without a connection the client looks for a server by itself.
    pub(crate) async fn is_possible(&self, client: &Client) {
        if client.connection_state() == State::Connected && self.is_time_to_leave(Instant::now()) {
            leave_server(client).await;
        }
    }

    /// True for one of those who ask at the same time.
    fn is_time_to_leave(&self, now: Instant) -> bool {
        let mut failing = self.failing();
        // Long ago it was another failure.
        let recent = failing.filter(|failing| now < failing.leave_at + ELECTION);
        let Failing { leave_at, choice } = recent.unwrap_or(Failing { leave_at: now + ELECTION, choice: CHOICE });
        let leaves = now >= leave_at;
        *failing = Some(match leaves {
            true => {
                Failing { leave_at: now + BROKER_RESPONSE_TIMEOUT + choice, choice: (choice * 2).min(LONGEST_CHOICE) }
            }
            false => Failing { leave_at, choice },
        });
        leaves
    }

    fn failing(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn leave_server(client: &Client) {
    // The client answers nothing while it has no connection.
    let Ok(Ok(servers)) = timeout(BROKER_RESPONSE_TIMEOUT, client.server_pool()).await else { return };
    if servers.len() < 2 {
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

    #[test]
    fn one_leaves_after_an_election_without_any_answer() {
        let (isolation, began) = (Isolation::default(), Instant::now());
        let leaves = |seconds| isolation.is_time_to_leave(began + Duration::from_secs(seconds));
        assert!(!leaves(0) && !leaves(7), "it may be an election");
        assert!(leaves(8) && !leaves(8), "only one leaves");
        isolation.is_over();
        assert!(!leaves(9) && !leaves(16));
        isolation.is_over();
        assert!(!leaves(18), "it was answered meanwhile");
        assert!(!leaves(40) && leaves(48), "long ago it was another failure");
        assert!(!leaves(52) && leaves(53) && !leaves(60) && leaves(61), "each next server has twice the time");
    }

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
