//! A TCP proxy on one link, which can be slow, silent, one-way or cut. It never changes or reorders bytes: bytes are lost only
//! together with the connection. Only acknowledgements to NATS can be lost alone.

mod nats;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use self::nats::Frames;
use crate::wait::free_port;

const CHUNK: usize = 16 * 1024;

/// How the link behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Manner {
    /// As if there were no proxy.
    #[default]
    Pass,
    /// Each chunk of data is delayed by this much, in both directions.
    Latency(Duration),
    /// No data arrives, without an error; it arrives when the link is healed, as TCP would retransmit it.
    Silent,
    /// Data of the client arrives, and responses are lost; healing resets the connections.
    AnswersLost,
    /// Consumers' acknowledgements are lost as whole frames; all other data arrives. Only a proxy in front of NATS recognises
    /// them; for any other this is [`Manner::Pass`].
    AcksLost,
    /// New connections are delayed by this much.
    SlowToOpen(Duration),
    /// New connections are refused, and existing ones are closed.
    Shut,
    /// A connection on which this is sent is closed instead.
    CutBy(&'static str),
}

#[derive(Debug, Clone, Copy, Default)]
struct Control {
    manner: Manner,
    resets: u64,
    half_opened: u64,
}

/// A listener on a private port that forwards to another port of this machine.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    control: watch::Sender<Control>,
    clients: Arc<AtomicU32>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of a port, which need not listen yet.
    pub async fn start(upstream: u16) -> anyhow::Result<Self> {
        Self::listen(upstream, false).await
    }

    /// As [`Proxy::start`], in front of a NATS server: it recognises acknowledgements.
    pub async fn in_front_of_nats(upstream: u16) -> anyhow::Result<Self> {
        Self::listen(upstream, true).await
    }

    async fn listen(upstream: u16, nats: bool) -> anyhow::Result<Self> {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("the proxy cannot listen")?;
        let control = watch::Sender::new(Control::default());
        let subscriber = control.clone();
        let clients = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&clients);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (upstream, frames) = (SocketAddr::from(([127, 0, 0, 1], upstream)), nats.then(Frames::default));
                tokio::spawn(connection(client, upstream, subscriber.subscribe(), frames));
            }
        });
        Ok(Proxy { port, control, clients, accepting })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of client connections so far.
    pub fn clients(&self) -> u32 {
        self.clients.load(Ordering::Relaxed)
    }

    /// Sets the behaviour of the link from now on.
    pub fn behave(&self, manner: Manner) {
        self.control.send_modify(|control| control.manner = manner);
    }

    /// Resets all connections. New ones are accepted.
    pub fn reset(&self) {
        self.control.send_modify(|control| control.resets += 1);
    }

    /// Makes all connections half-open: the other end is gone without notice. New ones are accepted.
    pub fn half_open(&self) {
        self.control.send_modify(|control| control.half_opened += 1);
    }

    /// Restores the link. Connections that have lost responses are reset. Half-open ones stay so. Connections that have lost
    /// acknowledgements stay open: no other data is missing, and the broker redelivers.
    pub fn heal(&self) {
        self.control.send_modify(|control| {
            if control.manner == Manner::AnswersLost {
                control.resets += 1;
            }
            control.manner = Manner::Pass;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Why the proxy ends a connection.
enum End {
    Reset,
    HalfOpen,
}

async fn connection(
    mut client: TcpStream,
    upstream: SocketAddr,
    control: watch::Receiver<Control>,
    frames: Option<Frames>,
) {
    let born = *control.borrow();
    match born.manner {
        Manner::Shut => return,
        Manner::SlowToOpen(time) => tokio::time::sleep(time).await,
        _ => {}
    }
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        abort(&client);
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let end = tokio::select! {
        () = pump(from_client, to_server, control.clone(), false, frames) => return,
        () = pump(from_server, to_client, control.clone(), true, None) => return,
        end = ended(control, born) => end,
    };
    match end {
        Some(End::Reset) => {
            abort(&client);
            abort(&server);
        }
        Some(End::HalfOpen) => {
            drop(server);
            let mut ignored = vec![0; CHUNK];
            while client.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        }
        None => {}
    }
}

/// Makes closing the socket send a reset. If that fails, an orderly close also serves.
fn abort(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn ended(mut control: watch::Receiver<Control>, born: Control) -> Option<End> {
    let is_reset = |now: &Control| now.resets > born.resets || now.manner == Manner::Shut;
    let now = *control.wait_for(|now| is_reset(now) || now.half_opened > born.half_opened).await.ok()?;
    Some(if is_reset(&now) { End::Reset } else { End::HalfOpen })
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut control: watch::Receiver<Control>,
    answers: bool,
    mut frames: Option<Frames>,
) {
    let (mut buffer, mut framed) = (vec![0; CHUNK], Vec::new());
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let manner = control.borrow_and_update().manner;
        match manner {
            Manner::CutBy(words) if !answers && String::from_utf8_lossy(&buffer[..read]).contains(words) => return,
            Manner::Pass | Manner::AcksLost | Manner::SlowToOpen(_) | Manner::Shut | Manner::CutBy(_) => {}
            Manner::Latency(time) => tokio::time::sleep(time).await,
            Manner::Silent => {
                if control.wait_for(|now| now.manner != Manner::Silent).await.is_err() {
                    return;
                }
            }
            Manner::AnswersLost if answers => continue,
            Manner::AnswersLost => {}
        }
        let passed: &[u8] = match &mut frames {
            Some(frames) => {
                framed.clear();
                // Always, because it must know the frame boundaries when acknowledgements start to be dropped.
                frames.feed(&buffer[..read], manner == Manner::AcksLost, &mut framed);
                &framed
            }
            None => &buffer[..read],
        };
        if to.write_all(passed).await.is_err() {
            return;
        }
    }
}
