//! Listeners that were opened inside a machine's network and handed over: served from here on, for one session.
use super::redirect;
use crate::Gateway;
use crate::control::handover::ListenerHost;
use crate::control::types::ListenerKind;
use crate::names::serve;
use crate::session::Session;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};

enum Ready {
    Redirect(TcpListener),
    Dns(UdpSocket),
}

impl ListenerHost for Gateway {
    fn serve(&self, session: Arc<Session>, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String> {
        let mut ready = Vec::with_capacity(listeners.len());
        for (index, (kind, descriptor)) in listeners.into_iter().enumerate() {
            ready
                .push(take(kind, descriptor).map_err(|why| format!("descriptor {index} ({kind:?}): {why}"))?);
        }
        let shared = &self.shared;
        if shared.draining.is_cancelled() {
            return Err("the gateway is stopping".to_owned());
        }
        let door = shared.doors.of(&session);
        let token = door.replace_listeners();
        let id: Arc<str> = session.id().into();
        for listener in ready {
            let (shared, door, id, token) = (shared.clone(), door.clone(), id.clone(), token.clone());
            let draining = shared.draining.clone();
            shared.tasks.clone().spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = draining.cancelled() => {}
                    () = async {
                        match listener {
                            Ready::Redirect(listener) => redirect::serve(shared, id, door, listener).await,
                            Ready::Dns(socket) => serve::serve_udp(shared, id, door.names.clone(), socket).await,
                        }
                    } => {}
                }
            });
        }
        Ok(())
    }
}

/// Checks that a descriptor is what it was announced as, and registers it with the runtime.
fn take(kind: ListenerKind, descriptor: OwnedFd) -> Result<Ready, String> {
    let text = |error: io::Error| error.to_string();
    let (family, socket_type) = sockopt::socket_domain(&descriptor)
        .and_then(|family| Ok((family, sockopt::socket_type(&descriptor)?)))
        .map_err(|error| format!("it is no socket: {error}"))?;
    if family != AddressFamily::INET && family != AddressFamily::INET6 {
        return Err("it is no internet socket".to_owned());
    }
    match kind {
        ListenerKind::Redirect => {
            if socket_type != SocketType::STREAM || !sockopt::socket_acceptconn(&descriptor).unwrap_or(false)
            {
                return Err("it is no listening TCP socket".to_owned());
            }
            let listener = std::net::TcpListener::from(descriptor);
            listener.set_nonblocking(true).map_err(text)?;
            TcpListener::from_std(listener).map(Ready::Redirect).map_err(text)
        }
        ListenerKind::Dns => {
            if socket_type != SocketType::DGRAM {
                return Err("it is no UDP socket".to_owned());
            }
            let socket = std::net::UdpSocket::from(descriptor);
            socket.set_nonblocking(true).map_err(text)?;
            UdpSocket::from_std(socket).map(Ready::Dns).map_err(text)
        }
    }
}
