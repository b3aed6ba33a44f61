//! The API that the supervisor calls: JSON over HTTP on a unix socket, listeners over a second one.
pub mod handover;
pub mod types;
