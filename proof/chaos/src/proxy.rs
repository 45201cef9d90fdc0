//! A TCP proxy on one link, which can be slow, silent, deaf or gone. It never changes or reorders a byte: what it loses, it
//! loses together with the connection. Only acknowledgements to NATS can be lost alone.

mod nats;

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use testkit::free_port;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use self::nats::Frames;

const CHUNK: usize = 16 * 1024;

/// How the link behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Manner {
    /// As if there were no proxy.
    #[default]
    Pass,
    /// Each piece of data takes this much longer, in both directions.
    Latency(Duration),
    /// Nothing arrives, and nobody is told; what was sent arrives when the link is healed, as TCP would repeat it.
    Silent,
    /// What the client sends arrives, and the answers are lost; healing resets the connections.
    AnswersLost,
    /// Consumers' acknowledgements are lost, whole frames of them, and everything else arrives. Only a proxy in front
    /// of NATS can tell which they are; for any other this is [`Manner::Pass`].
    AcksLost,
}

#[derive(Debug, Clone, Copy, Default)]
struct Control {
    manner: Manner,
    resets: u64,
    half_opened: u64,
}

/// A listener on a port of its own that passes everything on to another port of this machine.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    control: watch::Sender<Control>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of a port, which need not listen yet.
    pub async fn start(upstream: u16) -> anyhow::Result<Self> {
        Self::listen(upstream, false).await
    }

    /// As [`Proxy::start`], in front of a NATS server: it can tell acknowledgements from everything else.
    pub async fn in_front_of_nats(upstream: u16) -> anyhow::Result<Self> {
        Self::listen(upstream, true).await
    }

    async fn listen(upstream: u16, nats: bool) -> anyhow::Result<Self> {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("a proxy has no port")?;
        let control = watch::Sender::new(Control::default());
        let subscriber = control.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, frames) = (SocketAddr::from(([127, 0, 0, 1], upstream)), nats.then(Frames::default));
                tokio::spawn(connection(client, upstream, subscriber.subscribe(), frames));
            }
        });
        Ok(Proxy { port, control, accepting })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the link behaves like this.
    pub fn behave(&self, manner: Manner) {
        self.control.send_modify(|control| control.manner = manner);
    }

    /// Resets all connections there are. New ones are accepted.
    pub fn reset(&self) {
        self.control.send_modify(|control| control.resets += 1);
    }

    /// The other end of all connections there are is gone, and this end is never told. New ones are accepted.
    pub fn half_open(&self) {
        self.control.send_modify(|control| control.half_opened += 1);
    }

    /// The link works again. Connections that have lost answers are reset; half-open ones stay as they are, and so do
    /// those that have lost acknowledgements: nothing is missing in what either side reads, and the broker asks again.
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

/// Why a connection ends before its two sides want it to.
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

/// Closing it will send a reset. A socket that refuses is closed in good order, which is as good.
fn abort(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn ended(mut control: watch::Receiver<Control>, born: Control) -> Option<End> {
    let ends = |now: &Control| now.resets > born.resets || now.half_opened > born.half_opened;
    let now = *control.wait_for(ends).await.ok()?;
    Some(if now.resets > born.resets { End::Reset } else { End::HalfOpen })
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
            Manner::Pass | Manner::AcksLost => {}
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
                // Always, for it has to know where a frame begins when acknowledgements begin to get lost.
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
