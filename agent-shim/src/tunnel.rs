//! A remote machine's way to its gateway: every connection and every name goes through one HTTP/2 connection.
//!
//! What arrives at the TCP port was redirected there by the machine's packet filter, or asks for it as a proxy's client
//! (CONNECT). Nothing is trusted here: what may pass is decided by the gateway, which knows the machine by its certificate.
mod carry;
mod dns;
mod link;
mod request;
mod target;
mod tls;

pub use request::{RequestError, request_certificate};
pub use tls::{Files, TlsError};

use link::Link;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;

/// Connections carried at a time; further ones wait in the listener's queue. Less than the gateway's limit for one tunnel,
/// so that names can be looked up whatever happens.
const CONNECTIONS: usize = 900;
/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// What to carry, and where to.
#[derive(Debug, Clone)]
pub struct Options {
    /// The gateway's address for tunnels, `HOST:PORT`.
    pub gateway: String,
    /// The name in the gateway's certificate.
    pub name: String,
    /// Certificate, key and authority.
    pub files: Files,
    /// Where redirected connections and a proxy's clients arrive.
    pub tcp: Option<SocketAddr>,
    /// Where names are asked for, over UDP and TCP.
    pub dns: Option<SocketAddr>,
}

/// Why nothing is carried. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// An address cannot be had.
    #[error("cannot listen on `{address}`: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// Certificate, key or authority.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// Neither names nor connections were asked for.
    #[error("nothing to carry: give `--tcp ADDRESS:PORT`, `--dns ADDRESS:PORT`, or both")]
    Nothing,
}

/// Serves until the process ends. What goes wrong later is written to standard error; the tunnel comes back by itself.
///
/// # Errors
/// At the start only: an address that is taken, files that cannot be used.
pub async fn run(options: Options) -> Result<std::convert::Infallible, TunnelError> {
    if options.tcp.is_none() && options.dns.is_none() {
        return Err(TunnelError::Nothing);
    }
    // Wrong files are told at once instead of at the first connection.
    tls::client(&options.files)?;
    let link = Arc::new(Link::new(options.gateway, options.name, options.files));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let fault = |address| move |error| TunnelError::Listen { address, error };
    if let Some(address) = options.tcp {
        let listener = TcpListener::bind(address).await.map_err(fault(address))?;
        tokio::spawn(carry_all(listener, link.clone(), places.clone()));
    }
    if let Some(address) = options.dns {
        let udp = UdpSocket::bind(address).await.map_err(fault(address))?;
        let listener = TcpListener::bind(address).await.map_err(fault(address))?;
        tokio::spawn(dns::serve_udp(udp, link.clone()));
        tokio::spawn(dns::accept(listener, link.clone(), places));
    }
    Ok(link.keep().await)
}

async fn carry_all(listener: TcpListener, link: Arc<Link>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let link = link.clone();
                tokio::spawn(async move {
                    carry::carry(stream, &link).await;
                    drop(place);
                });
            }
            Err(error) => {
                link::say(&format!("a connection could not be accepted: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
