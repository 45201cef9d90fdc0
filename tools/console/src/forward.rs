//! Forwards TCP connections to services by name. In Docker it holds a port of the host, regardless of the number of replicas:
//! each connection goes to the next of the addresses that the name currently resolves to.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinSet,
    time::timeout,
};

use crate::interrupted;

/// A replica that takes longer is skipped.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Connections beyond these wait until another one ends.
const MOST_CONNECTIONS: usize = 1000;

/// `console forward`.
#[derive(Debug, clap::Args)]
pub struct ForwardArgs {
    /// Where to listen and where to forward to, such as 0.0.0.0:8081=order:8081
    #[arg(required = true)]
    routes: Vec<Route>,
}

/// One port and the service behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    listen: SocketAddr,
    /// `HOST:PORT`; resolved for each connection, possibly to several addresses.
    service: String,
}

impl FromStr for Route {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Route> {
        let (listen, service) = text.split_once('=').context("ADDRESS:PORT=HOST:PORT")?;
        let listen = listen.parse().with_context(|| format!("{listen} is no address with a port"))?;
        if !service.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            bail!("{service} is no host with a port");
        }
        Ok(Route { listen, service: service.to_owned() })
    }
}

/// Runs until SIGTERM or Ctrl-C, which closes all connections.
pub async fn command(args: &ForwardArgs) -> anyhow::Result<bool> {
    let mut routes = JoinSet::new();
    for route in args.routes.clone() {
        let listener =
            TcpListener::bind(route.listen).await.with_context(|| format!("cannot listen on {}", route.listen))?;
        eprintln!("forwarding {} to {}", route.listen, route.service);
        routes.spawn(forward(listener, route.service));
    }
    tokio::select! {
        () = interrupted() => Ok(true),
        _ = routes.join_next() => Ok(false),
    }
}

/// Accepts connections for ever.
async fn forward(listener: TcpListener, service: String) {
    let mut open = JoinSet::new();
    let mut turn = 0_usize;
    loop {
        while open.try_join_next().is_some() {}
        if open.len() >= MOST_CONNECTIONS {
            open.join_next().await;
        }
        // Accepting fails because of one client, or because file descriptors are exhausted, which is temporary.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        turn = turn.wrapping_add(1);
        open.spawn(forward_connection(client, service.clone(), turn));
    }
}

/// If no replica can be reached, the client's connection is closed.
async fn forward_connection(mut client: TcpStream, service: String, turn: usize) {
    let Some(mut replica) = connect(&service, turn).await else { return };
    for stream in [&client, &replica] {
        // Without this, small answers wait for acknowledgements.
        let _ = stream.set_nodelay(true);
    }
    let _ = copy_bidirectional(&mut client, &mut replica).await;
}

/// The replica whose turn it is, or the next one that can be reached.
async fn connect(service: &str, turn: usize) -> Option<TcpStream> {
    let mut addresses: Vec<SocketAddr> = lookup_host(service).await.ok()?.collect();
    addresses.sort_unstable();
    let first = turn.checked_rem(addresses.len())?;
    addresses.rotate_left(first);
    for address in addresses {
        if let Ok(Ok(stream)) = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            return Some(stream);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_route_is_an_address_and_a_host_with_ports() {
        let route: Route = "0.0.0.0:8081=order:8081".parse().unwrap();
        assert_eq!(route, Route { listen: "0.0.0.0:8081".parse().unwrap(), service: "order:8081".to_owned() });
        for wrong in ["", "8081", "8081=order:8081", "0.0.0.0:8081=order", "0.0.0.0:8081=:1", "0.0.0.0:8081=order:http"]
        {
            assert!(wrong.parse::<Route>().is_err(), "{wrong}");
        }
    }

    /// A connection that is forwarded to `service` until the tasks are dropped.
    async fn client_of(service: SocketAddr) -> (TcpStream, JoinSet<()>) {
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(forward(front, service.to_string()));
        (TcpStream::connect(address).await.unwrap(), tasks)
    }

    #[tokio::test]
    async fn data_is_forwarded_in_both_directions() {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut client, _tasks) = client_of(service.local_addr().unwrap()).await;
        client.write_all(b"ping").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut replica, _) = service.accept().await.unwrap();
        let mut request = Vec::new();
        replica.read_to_end(&mut request).await.unwrap();
        replica.write_all(b"pong").await.unwrap();
        drop(replica);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((&*request, &*answer), (&b"ping"[..], &b"pong"[..]));
    }

    #[tokio::test]
    async fn without_a_service_the_connection_is_closed() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let (mut client, _tasks) = client_of(address).await;
        assert!(!matches!(client.read(&mut [0; 1]).await, Ok(read) if read > 0));
    }
}
