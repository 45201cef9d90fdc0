//! Pages are for requests to this console alone. Whoever reads without a login sees what the console may read, so a page of another
//! site must not: it could have its own name lead here, and would then be of the same origin (DNS rebinding).

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bootstrap::Problem;

/// The names of this console, besides addresses and names without a dot, which no other site can have.
#[derive(Debug, Clone)]
pub(crate) struct Hosts(Arc<[String]>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    fn are_of(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(address) => address.split(']').next().unwrap_or(address),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.to_ascii_lowercase();
        !name.contains('.') || name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

/// Middleware: 421 for requests to another host.
pub(crate) async fn expect_own(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(|host| !hosts.are_of(host)) {
        let detail = "This console does not have that name: it is given with --host or CONSOLE_HOSTS.";
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_plain_names_and_given_ones_are_its_own() {
        let hosts = Hosts::new(&["Desk.Shop.Example".to_owned()]);
        for own in ["127.0.0.1:8085", "[::1]:8085", "localhost", "console:8085", "desk.shop.example"] {
            assert!(hosts.are_of(own), "{own}");
        }
        for other in ["evil.example", "evil.example:8085", "127.0.0.1.evil.example", "shop.example"] {
            assert!(!hosts.are_of(other), "{other}");
        }
    }
}
