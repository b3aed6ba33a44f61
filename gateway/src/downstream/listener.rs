//! Sockets that belong to one session: what they accept is that session's, whatever it says of itself.
use super::caller::Owner;
use super::proxy::{self, Entrance};
use super::redirect::{self, Led};
use super::socket::{Socket, pause};
use crate::Shared;
use crate::control::types::ListenerKind;
use crate::names::serve;
use rustix::net::{AddressFamily, SocketType, sockopt};
use socket2::{Domain, Protocol, SockRef, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::Semaphore;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket of one session.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Led(TcpListener, Led),
    Dns(Arc<UdpSocket>),
    Proxy(Socket),
}

impl Listener {
    /// Checks that a descriptor is what it was announced as, and registers it with the runtime. The error is for people.
    pub fn take(kind: ListenerKind, descriptor: OwnedFd) -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        let (family, socket_type) = sockopt::socket_domain(&descriptor)
            .and_then(|family| Ok((family, sockopt::socket_type(&descriptor)?)))
            .map_err(|error| format!("it is no socket: {error}"))?;
        let listens =
            socket_type == SocketType::STREAM && sockopt::socket_acceptconn(&descriptor).unwrap_or(false);
        if kind == ListenerKind::Proxy && family == AddressFamily::UNIX {
            if !listens {
                return Err("it is no listening stream socket".to_owned());
            }
            let listener = std::os::unix::net::UnixListener::from(descriptor);
            listener.set_nonblocking(true).map_err(text)?;
            let listener = UnixListener::from_std(listener).map_err(text)?;
            return Ok(Self(Kind::Proxy(Socket::Unix(listener))));
        }
        if family != AddressFamily::INET && family != AddressFamily::INET6 {
            return Err("it is no internet socket".to_owned());
        }
        if kind == ListenerKind::Dns {
            if socket_type != SocketType::DGRAM {
                return Err("it is no UDP socket".to_owned());
            }
            return Self::dns(std::net::UdpSocket::from(descriptor)).map_err(text);
        }
        if !listens {
            return Err("it is no listening TCP socket".to_owned());
        }
        if kind == ListenerKind::Transparent
            && !SockRef::from(&descriptor).ip_transparent_v4().map_err(text)?
        {
            return Err("it is not transparent: set `IP_TRANSPARENT` on it before it listens".to_owned());
        }
        Self::tcp(kind, std::net::TcpListener::from(descriptor)).map_err(text)
    }

    /// Opens a socket on this host.
    pub fn open(kind: ListenerKind, address: SocketAddr) -> io::Result<Self> {
        if kind == ListenerKind::Dns {
            return Self::dns(std::net::UdpSocket::bind(address)?);
        }
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if kind == ListenerKind::Transparent {
            socket.set_ip_transparent_v4(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Self::tcp(kind, socket.into())
    }

    /// Where it listens, if that is an address.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.0 {
            Kind::Led(listener, _) => listener.local_addr().map(Some),
            Kind::Dns(socket) => socket.local_addr().map(Some),
            Kind::Proxy(socket) => socket.address(),
        }
    }

    /// Serves a session until dropped.
    pub async fn serve(&self, shared: &Arc<Shared>, session: &Arc<str>) {
        match &self.0 {
            Kind::Led(listener, led) => redirect::serve(shared, session, *led, listener).await,
            Kind::Dns(socket) => names(shared, session, socket).await,
            Kind::Proxy(socket) => {
                let entrance = Entrance {
                    owner: Owner::Listener(session.clone()),
                    places: Arc::new(Semaphore::new(shared.limits.connections)),
                    balancers: Arc::new([]),
                };
                proxy::accept(shared, socket, entrance).await;
            }
        }
    }

    fn dns(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket).map(|socket| Self(Kind::Dns(Arc::new(socket))))
    }

    fn tcp(kind: ListenerKind, listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self(match kind {
            ListenerKind::Transparent => Kind::Led(listener, Led::Transparently { listener: bound }),
            ListenerKind::Proxy => Kind::Proxy(Socket::Tcp(listener)),
            ListenerKind::Redirect | ListenerKind::Dns => Kind::Led(listener, Led::Redirected),
        }))
    }
}

/// Answers queries with the names of whichever session has the id at the time; of none, nothing is answered.
async fn names(shared: &Arc<Shared>, id: &Arc<str>, socket: &Arc<UdpSocket>) {
    loop {
        if let Err(error) = socket.readable().await {
            pause(&error).await;
            continue;
        }
        // Looked for when a query is there, so that the first one after the session came is answered.
        let Some(session) = shared.sessions.by_id(id) else {
            let dropped = socket.try_recv_from(&mut [0; 1]);
            tracing::debug!(?dropped, session = %id, "a DNS query came for a session which there is not");
            continue;
        };
        let door = shared.doors.of(&session);
        tokio::select! {
            () = serve::serve_udp(shared.clone(), id.clone(), door.names.clone(), socket.clone()) => {}
            () = door.ended() => {}
        }
    }
}
