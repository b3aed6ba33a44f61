//! Ways in: whatever accepts a connection turns it into an `Intake`, with who, where to, and the bytes.
pub mod handover;
pub mod proxy;
pub mod redirect;
