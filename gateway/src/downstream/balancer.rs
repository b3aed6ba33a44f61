//! The header that must come before anything else from a load balancer's network.
use super::proxy_header::{Header, HeaderFault, read};
use crate::stream::Stream;
use ipnet::IpNet;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::timeout;

/// Whether a peer is in one of the load balancers' networks.
pub fn is_one(balancers: &[IpNet], peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    balancers.iter().any(|network| network.contains(&peer))
}

/// Why no header could be read.
#[derive(Debug)]
pub enum NoHeader {
    /// Nothing was said, as when a balancer only looks whether the port is open; or the connection broke.
    Gone(io::Error),
    /// For the record.
    Fault(String),
}

/// Reads the header and takes it off the stream.
pub async fn header(stream: &mut Stream, limit: Duration) -> Result<Header, NoHeader> {
    let fault = |fault: HeaderFault| NoHeader::Fault(fault.to_string());
    let reading = async {
        loop {
            if let Some((header, length)) = read(stream.seen()).map_err(fault)? {
                stream.skip(length);
                return Ok(header);
            }
            match stream.look_further().await {
                Ok(true) => {}
                Ok(false) if stream.seen().is_empty() => {
                    return Err(NoHeader::Gone(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(false) => return Err(fault(HeaderFault::Cut)),
                Err(error) => return Err(NoHeader::Gone(error)),
            }
        }
    };
    match timeout(limit, reading).await {
        Ok(read) => read,
        Err(_) => Err(NoHeader::Fault(format!(
            "no whole PROXY header came within {limit:?}"
        ))),
    }
}
