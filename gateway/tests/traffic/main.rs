//! The data path from a client's bytes to an origin's socket and back: real TLS, real sockets, the real parts.
#[cfg(test)]
mod addresses;
#[cfg(test)]
mod agreement;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod compression;
#[cfg(test)]
mod database;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod fidelity;
#[cfg(test)]
mod fields;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod git;
#[cfg(test)]
mod granted;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod handover;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod interim;
#[cfg(test)]
mod names;
#[cfg(test)]
mod observed;
#[cfg(test)]
mod origin;
#[cfg(test)]
mod pace;
#[cfg(test)]
mod parent;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod postgres_bounds;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod pushes;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod socks;
#[cfg(test)]
mod ssh;
#[cfg(test)]
mod ssh_git;
#[cfg(test)]
mod sshd;
#[cfg(test)]
mod stand;
#[cfg(test)]
mod tls_down;
#[cfg(test)]
mod tls_up;
#[cfg(test)]
mod transparent;
#[cfg(test)]
mod tunnel;
#[cfg(test)]
mod tunnel_in;
#[cfg(test)]
mod ways;
#[cfg(test)]
mod websocket;
