//! A door in front of PostgreSQL, behind which it takes its time to let somebody in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// How long it takes to be let in; nobody is while it is shut, and who was inside is thrown out.
type State = Option<Duration>;

pub struct Door {
    /// The URL that it was made with, through the door.
    pub url: String,
    state: watch::Sender<State>,
    turned_away: Arc<AtomicU32>,
    accepting: JoinHandle<()>,
}

impl Door {
    /// A door that is shut.
    pub async fn before(url: &str) -> anyhow::Result<Self> {
        let (user, place) = url.rsplit_once('@').context("a URL without a user")?;
        let (server, database) = place.split_once('/').context("a URL without a database")?;
        let (server, listener) = (server.to_owned(), TcpListener::bind("127.0.0.1:0").await?);
        let url = format!("{user}@{}/{database}", listener.local_addr()?);
        let state = watch::Sender::new(None);
        let turned_away = Arc::new(AtomicU32::new(0));
        let (outside, turn_away) = (state.clone(), Arc::clone(&turned_away));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = outside.subscribe();
                let now = *state.borrow();
                match now {
                    Some(wait) => {
                        tokio::spawn(pass(client, server.clone(), wait, state));
                    }
                    None => {
                        turn_away.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        Ok(Door { url, state, turned_away, accepting })
    }

    pub fn open(&self, after: Duration) {
        self.state.send_replace(Some(after));
    }

    pub fn shut(&self) {
        self.state.send_replace(None);
    }

    /// How many came while it was shut.
    pub fn turned_away(&self) -> u32 {
        self.turned_away.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut client: TcpStream, server: String, wait: Duration, mut state: watch::Receiver<State>) {
    let inside = async {
        sleep(wait).await;
        let mut server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = inside => {}
        _ = state.wait_for(Option::is_none) => {}
    }
}
