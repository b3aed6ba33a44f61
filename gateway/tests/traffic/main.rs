//! The data path from a client's bytes to an origin's socket and back: real TLS, real sockets, the real parts.
mod fidelity;
mod identity;
mod origin;
mod proxy;
mod refusals;
mod secrets;
mod stand;
