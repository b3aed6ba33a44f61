//! Ways in: whatever accepts a connection turns it into an `Intake`, with who, where to, and the bytes.
pub mod handover;
pub mod mtls;
pub mod proxy;
pub mod redirect;

use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The sockets on which whoever comes must say who it is. Listeners inside machines come by hand-over.
#[derive(Debug)]
pub struct Ways {
    /// The explicit proxy.
    pub proxy: TcpListener,
    /// Other addresses on which this gateway listens; never dialled.
    pub own: Vec<SocketAddr>,
    /// Where the tunnels of remote machines come in.
    pub tunnel: Option<mtls::Entrance>,
}

impl Ways {
    /// The explicit proxy alone.
    pub fn new(proxy: TcpListener) -> Self {
        Self {
            proxy,
            own: Vec::new(),
            tunnel: None,
        }
    }

    /// Every address that must not be dialled, since it would be a loop.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let mut own = self.own.clone();
        own.push(self.proxy.local_addr()?);
        if let Some(tunnel) = &self.tunnel {
            own.push(tunnel.tunnels.address);
        }
        Ok(own)
    }
}
