//! Names: answers to machines with synthetic addresses, and the gateway's own look-ups.
pub mod resolve;
pub mod serve;
pub mod synthetic;
