//! The gateway: every byte that leaves an agent's machine passes here, is decided, and leaves a record.
pub mod audit;
pub mod control;
pub mod secret;
pub mod session;
