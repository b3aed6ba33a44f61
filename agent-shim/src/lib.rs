//! The small program inside a machine, and the wire types that it shares with the supervisor.
pub mod wire;
