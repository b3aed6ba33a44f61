//! The data path from a client's bytes to an origin's socket and back: real TLS, real sockets, the real parts.
#[cfg(test)]
mod fidelity;
#[cfg(test)]
mod handover;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod origin;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod stand;
