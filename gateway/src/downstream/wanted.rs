//! The ways in that an operator asks for besides the proxy's address, and the sockets that come of them.
use super::Ways;
use super::listener::Listener;
use super::socket::Socket;
use crate::control::types::ListenerKind;
use crate::control::{SocketError, bind_with_mode};
use ipnet::IpNet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What is asked for. Nothing by default.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The explicit proxy's unix socket: path and mode.
    pub socket: Option<(PathBuf, u32)>,
    /// Listeners that belong to one session each.
    pub listeners: Vec<SessionListener>,
    /// Networks of load balancers before the explicit proxy.
    pub balancers: Vec<IpNet>,
}

/// A listener of this host whose connections are all one session's: the packet filter, or whoever may reach the address, decides who
/// that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListener {
    /// What is spoken on it.
    pub kind: ListenerKind,
    /// Where it listens.
    pub address: SocketAddr,
    /// The session's id. The session may come later; until then everything is refused.
    pub session: Arc<str>,
}

/// Why a socket cannot be had. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// The unix socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A session's listener.
    #[error("cannot listen on `{address}` for session `{session}`: {error}{}", hint(.error))]
    Listener {
        /// Address.
        address: SocketAddr,
        /// Session id.
        session: Arc<str>,
        /// What the system said.
        error: io::Error,
    },
}

impl WantedError {
    /// Whether trying again later may help, without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Socket(error) => matches!(error, SocketError::Taken(_)),
            Self::Listener { error, .. } => error.kind() == io::ErrorKind::AddrInUse,
        }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE, `transparent` needs CAP_NET_ADMIN"
        }
        _ => "",
    }
}

impl FromStr for SessionListener {
    type Err = String;

    /// Reads `KIND:ADDRESS:PORT=SESSION`.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write it as KIND:ADDRESS:PORT=SESSION, such as `redirect:0.0.0.0:15001=ci`".to_owned();
        let (kind, rest) = text.split_once(':').ok_or_else(form)?;
        let (address, session) = rest.split_once('=').ok_or_else(form)?;
        let kind = match kind {
            "redirect" => ListenerKind::Redirect,
            "transparent" => ListenerKind::Transparent,
            "dns" => ListenerKind::Dns,
            "proxy" => ListenerKind::Proxy,
            _ => return Err("the kinds are `redirect`, `transparent`, `dns` and `proxy`".to_owned()),
        };
        let address = address
            .parse()
            .map_err(|_| format!("`{}` is no address with a port", address.escape_debug()))?;
        if session.is_empty() {
            return Err(form());
        }
        Ok(Self {
            kind,
            address,
            session: session.into(),
        })
    }
}

/// Opens everything that is asked for.
pub fn open(proxy: TcpListener, wanted: Wanted) -> Result<Ways, WantedError> {
    let mut ways = Ways::new(proxy);
    ways.balancers = wanted.balancers;
    if let Some((path, mode)) = wanted.socket {
        ways.socket = Some(Socket::Unix(bind_with_mode(&path, mode)?));
    }
    for SessionListener {
        kind,
        address,
        session,
    } in wanted.listeners
    {
        let listener = Listener::open(kind, address).map_err(|error| WantedError::Listener {
            address,
            session: session.clone(),
            error,
        })?;
        tracing::info!(?kind, %address, %session, "listening for a session");
        ways.listeners.push((session, listener));
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_names_its_kind_its_address_and_its_session() {
        let listener: SessionListener = "transparent:[::]:15001=ci-1".parse().unwrap();
        assert_eq!(listener.kind, ListenerKind::Transparent);
        assert_eq!(listener.address, "[::]:15001".parse().unwrap());
        assert_eq!(&*listener.session, "ci-1");
        for wrong in [
            "15001=ci",
            "redirect:0.0.0.0:1",
            "redirect:0.0.0.0=ci",
            "fly:0.0.0.0:1=ci",
            "dns:0.0.0.0:53=",
        ] {
            assert!(wrong.parse::<SessionListener>().is_err(), "{wrong}");
        }
    }
}
