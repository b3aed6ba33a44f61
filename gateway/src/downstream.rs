//! Ways in: whatever accepts a connection turns it into an `Intake`, with who, where to, and the bytes.
pub mod balancer;
pub mod caller;
pub mod handover;
pub mod listener;
pub mod mtls;
pub mod opening;
pub mod proxy;
pub mod proxy_header;
pub mod redirect;
pub mod requests;
pub mod socket;
pub mod socks;
pub mod strangers;
pub mod wanted;

use crate::Shared;
use caller::Owner;
use futures_util::future::join_all;
use ipnet::IpNet;
use listener::Listener;
use proxy::Entrance;
use socket::Socket;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The sockets of this host. Listeners inside machines come by hand-over.
#[derive(Debug)]
pub struct Ways {
    /// The explicit proxy, at which whoever comes must say who it is.
    pub proxy: Socket,
    /// The explicit proxy in the file system.
    pub socket: Option<Socket>,
    /// Listeners that belong to one session each, by its id.
    pub listeners: Vec<(Arc<str>, Listener)>,
    /// Networks of load balancers before the explicit proxy: from there a PROXY header must come, from elsewhere none may.
    pub balancers: Vec<IpNet>,
    /// Other addresses on which this gateway listens; never dialled.
    pub own: Vec<SocketAddr>,
    /// Where the tunnels of remote machines come in.
    pub tunnel: Option<mtls::Entrance>,
}

impl Ways {
    /// The explicit proxy alone.
    pub fn new(proxy: TcpListener) -> Self {
        Self {
            proxy: Socket::Tcp(proxy),
            socket: None,
            listeners: Vec::new(),
            balancers: Vec::new(),
            own: Vec::new(),
            tunnel: None,
        }
    }

    /// Every address that must not be dialled, since it would be a loop.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let mut own = self.own.clone();
        if let Some(tunnel) = &self.tunnel {
            own.push(tunnel.tunnels.address);
        }
        own.extend(self.proxy.address()?);
        for (_, listener) in &self.listeners {
            own.extend(listener.address()?);
        }
        Ok(own)
    }

    /// Accepts on every socket until dropped.
    pub(crate) async fn serve(&self, shared: &Arc<Shared>) {
        let entrance = |balancers: Arc<[IpNet]>| Entrance {
            owner: Owner::Token,
            places: shared.proxy_places.clone(),
            balancers,
        };
        type Accepting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
        let balancers = self.balancers.as_slice().into();
        let mut all: Vec<Accepting<'_>> =
            vec![Box::pin(proxy::accept(shared, &self.proxy, entrance(balancers)))];
        if let Some(socket) = &self.socket {
            all.push(Box::pin(proxy::accept(shared, socket, entrance(Arc::new([])))));
        }
        for (session, listener) in &self.listeners {
            all.push(Box::pin(listener.serve(shared, session)));
        }
        join_all(all).await;
    }
}
