//! Connections that a packet filter led here: where they were meant to go is asked of the kernel.
use super::socket::pause;
use crate::Shared;
use crate::connection;
use crate::control::types::Verdict;
use crate::intake::Intake;
use crate::metrics::crowds::Crowd;
use crate::names::serve;
use crate::stream::Stream;
use sallyport_policy::{Destination, Host};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// DNS over TCP.
const DNS_PORT: u16 = 53;
/// How the packet filter led a connection here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Led {
    /// By REDIRECT: the kernel remembers the original destination.
    Redirected,
    /// By TPROXY: the socket's own local address is the original destination. `listener` is where the listener itself is bound.
    Transparently {
        /// Bound address.
        listener: SocketAddr,
    },
}

/// Accepts for a session until dropped.
pub async fn serve(shared: &Arc<Shared>, session: &Arc<str>, led: Led, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, session) = (shared.clone(), session.clone());
                shared
                    .tasks
                    .clone()
                    .spawn(async move { accepted(shared, &session, led, stream).await });
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn accepted(shared: Arc<Shared>, session: &str, led: Led, stream: TcpStream) {
    let Some(session) = shared.sessions.by_id(session) else {
        let mut ledger = shared.recorder.open(None, None, "connect");
        let why = format!("this listener belongs to session `{session}`, which there is not");
        ledger.verdict(Verdict::Denied, why);
        return ledger.close("refused").await;
    };
    let door = shared.doors.of(&session);
    if !shared.recorder.healthy() {
        tracing::error!(
            session = session.id(),
            "a connection was refused: the audit log cannot be written"
        );
        return;
    }
    let Some(_place) = door.admit() else {
        let crowds = shared.metrics.path().crowds();
        crowds.refused(Crowd::Session, &session.id());
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection was gone");
        return;
    }
    let target = match original_destination(&stream, led) {
        Ok(target) => target,
        Err(why) => {
            let mut ledger = shared.recorder.open(Some(&session), None, "connect");
            ledger.verdict(Verdict::Malformed, why);
            return ledger.close("refused").await;
        }
    };
    if target.port() == DNS_PORT {
        let answering = serve::serve_tcp(&shared, &session, &door.names, Stream::new(stream));
        return tokio::select! {
            () = answering => {}
            () = door.ended() => {}
            () = shared.draining.cancelled() => {}
        };
    }
    let destination = door.meant(Destination {
        host: Host::Address(target.ip()),
        port: target.port(),
    });
    connection::serve(
        shared,
        Intake {
            session,
            door,
            client: None,
            destination,
            stream: Stream::new(stream),
        },
    )
    .await;
}

/// Where the client meant to go. The listener itself as destination would be a loop.
fn original_destination(stream: &TcpStream, led: Led) -> Result<SocketAddr, String> {
    let gone = |error: io::Error| format!("the connection's addresses are unknown: {error}");
    let local = stream.local_addr().map_err(gone)?;
    let local = SocketAddr::new(unmapped(local.ip()), local.port());
    let (target, itself) = match led {
        Led::Redirected => {
            let target = redirected_from(stream, local)?;
            (target, target == local)
        }
        Led::Transparently { listener } => {
            // A listener on every address cannot tell its own from others': nothing on its port is led on.
            let same = listener.ip().is_unspecified() || unmapped(listener.ip()) == local.ip();
            (local, same && listener.port() == local.port())
        }
    };
    if itself {
        return Err("the gateway's listener was dialled itself, which would be a loop".to_owned());
    }
    Ok(target)
}

/// What the kernel remembers of a redirected connection (`SO_ORIGINAL_DST`).
fn redirected_from(stream: &TcpStream, local: SocketAddr) -> Result<SocketAddr, String> {
    let socket = SockRef::from(stream);
    let original = match local.ip() {
        IpAddr::V4(_) => socket.original_dst_v4(),
        IpAddr::V6(_) => socket.original_dst_v6(),
    };
    let target = original
        .map_err(|error| {
            format!("the connection was not redirected here, it dialled the listener itself: {error}")
        })?
        .as_socket()
        .ok_or("the original destination is no internet address")?;
    Ok(SocketAddr::new(unmapped(target.ip()), target.port()))
}

fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
