//! Connections that a machine's own packet filter redirected here: where they were meant to go is asked of the kernel.
use crate::Shared;
use crate::connection;
use crate::control::types::Verdict;
use crate::intake::{Door, Intake};
use crate::names::serve;
use crate::stream::Stream;
use sallyport_policy::{Destination, Host};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// DNS over TCP.
const DNS_PORT: u16 = 53;
/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const BACKOFF: Duration = Duration::from_millis(100);

/// Accepts for a session until dropped.
pub async fn serve(shared: Arc<Shared>, session: Arc<str>, door: Arc<Door>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, session, door) = (shared.clone(), session.clone(), door.clone());
                shared
                    .tasks
                    .clone()
                    .spawn(async move { accepted(shared, &session, door, stream).await });
            }
            Err(error) => {
                tracing::warn!(%error, %session, "a connection could not be accepted");
                tokio::time::sleep(BACKOFF).await;
            }
        }
    }
}

async fn accepted(shared: Arc<Shared>, session: &str, door: Arc<Door>, stream: TcpStream) {
    let Some(session) = shared.sessions.by_id(session) else {
        return;
    };
    if !shared.recorder.healthy() {
        tracing::error!(
            session = session.id(),
            "a connection was refused: the audit log cannot be written"
        );
        return;
    }
    let Some(_place) = door.admit() else {
        tracing::warn!(
            session = session.id(),
            "a connection was refused: the session has too many"
        );
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection was gone");
        return;
    }
    let target = match original_destination(&stream) {
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
            destination,
            stream: Stream::new(stream),
        },
    )
    .await;
}

/// Where the client meant to go (`SO_ORIGINAL_DST`). The listener itself as destination would be a loop.
fn original_destination(stream: &TcpStream) -> Result<SocketAddr, String> {
    let gone = |error: io::Error| format!("the connection's addresses are unknown: {error}");
    let local = stream.local_addr().map_err(gone)?;
    let socket = SockRef::from(stream);
    let original = match unmapped(local.ip()) {
        IpAddr::V4(_) => socket.original_dst_v4(),
        IpAddr::V6(_) => socket.original_dst_v6(),
    };
    let target = original
        .map_err(|error| {
            format!("the connection was not redirected here, it dialled the listener itself: {error}")
        })?
        .as_socket()
        .ok_or("the original destination is no internet address")?;
    let target = SocketAddr::new(unmapped(target.ip()), target.port());
    if target == SocketAddr::new(unmapped(local.ip()), local.port()) {
        return Err("the gateway's listener was dialled itself, which would be a loop".to_owned());
    }
    Ok(target)
}

fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
