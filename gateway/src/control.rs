//! The API that the supervisor calls: JSON over HTTP on a unix socket, listeners over a second one.
//!
//! Both sockets belong to the gateway's user alone (mode 0600 in a folder of mode 0700); whoever can open them is the
//! supervisor. See [`types`] for the calls.
mod certificates;
pub mod handlers;
pub mod handover;
mod policies;
pub mod serve;
pub mod types;
pub mod watch;

pub use serve::{Control, SocketError, bind, bind_with_mode};
