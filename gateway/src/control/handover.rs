//! The hand-over socket: listeners opened inside a machine's network come here as file descriptors.
use crate::control::types::ListenerKind;
use crate::session::Session;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Whoever accepts on behalf of sessions.
pub trait ListenerHost: Send + Sync + 'static {
    /// Serves these sockets for a session from now on and closes the session's earlier ones. The error is for people.
    fn serve(&self, session: Arc<Session>, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String>;
}
