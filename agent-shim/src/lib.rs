//! The small program inside a machine, and the wire types that it shares with the supervisor.
mod boot;
pub mod command;
pub mod credentials;
pub mod exec;
pub mod files;
pub mod local;
pub mod reap;
pub mod serve;
mod tree;
pub mod trust;
pub mod tunnel;
pub mod wire;
