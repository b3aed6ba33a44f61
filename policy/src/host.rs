//! Host names and addresses in the one form in which they are compared.
use std::net::IpAddr;

/// A destination host after normalisation: equal hosts are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name: UTS 46 ASCII form, lower case, without trailing dot.
    Name(String),
    /// An address literal, with IPv4-mapped IPv6 unwrapped.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a host name or address: {why}")]
pub struct HostFault {
    /// What was given, control characters escaped.
    pub input: String,
    /// What is wrong with it.
    pub why: String,
}

impl Host {
    /// Reads a host as it stands in CONNECT, `Host`, `:authority` or SNI, without port; IPv6 with or without brackets.
    pub fn parse(text: &str) -> Result<Self, HostFault> {
        let _ = text;
        todo!()
    }
}
