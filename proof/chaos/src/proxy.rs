//! A TCP proxy on one link, which can be slow, silent, deaf or gone. It never changes or reorders a byte: what it loses, it
//! loses together with the connection.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use testkit::free_port;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

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
    ///
    /// # Errors
    /// When its own port cannot be had.
    pub async fn start(upstream: u16) -> anyhow::Result<Self> {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("a proxy has no port")?;
        let control = watch::Sender::new(Control::default());
        let subscriber = control.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, SocketAddr::from(([127, 0, 0, 1], upstream)), subscriber.subscribe()));
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

    /// The link works again. Connections that have lost something are reset; half-open ones stay as they are.
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

async fn connection(mut client: TcpStream, upstream: SocketAddr, control: watch::Receiver<Control>) {
    let born = *control.borrow();
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        abort(&client);
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let end = tokio::select! {
        () = pump(from_client, to_server, control.clone(), false) => return,
        () = pump(from_server, to_client, control.clone(), true) => return,
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
) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let manner = control.borrow_and_update().manner;
        match manner {
            Manner::Pass => {}
            Manner::Latency(time) => tokio::time::sleep(time).await,
            Manner::Silent => {
                if control.wait_for(|now| now.manner != Manner::Silent).await.is_err() {
                    return;
                }
            }
            Manner::AnswersLost if answers => continue,
            Manner::AnswersLost => {}
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
