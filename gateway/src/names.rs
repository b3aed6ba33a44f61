//! Names: answers to machines with synthetic addresses, and the gateway's own look-ups.
pub mod answer;
pub mod doh;
pub mod kept;
pub mod known;
pub mod lookup;
pub mod refused;
pub mod resolve;
pub mod serve;
pub mod server;
pub mod synthetic;
