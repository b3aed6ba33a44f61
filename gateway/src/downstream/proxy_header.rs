//! The PROXY protocol, version 2, as a load balancer puts it before a client's bytes. Pure.
//!
//! <https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt>, section 2.2. Version 1 is told apart and refused.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What each header of version 2 begins with.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What each header of version 1 begins with.
pub const VERSION_1: &[u8] = b"PROXY ";
/// Signature, version and command, family, length.
const FIXED: usize = 16;
/// Bytes after the fixed part, at most. The protocol has room for 65,535; no balancer in use sends as many as this.
const LONGEST: usize = 4096;
/// The checksum's type (section 2.2.3).
const CRC32C: u8 = 3;

/// Whom a balancer speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// For a client.
    Proxied(ProxyHeader),
    /// For itself, or for a client without an internet address: the connection's own addresses hold.
    Own,
}

/// A client's connection to the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client.
    pub source: SocketAddr,
    /// What it dialled.
    pub destination: SocketAddr,
}

/// Why there is no header. The balancer's fault, or that of whoever configured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// The client's bytes, or anything else.
    #[error("no PROXY header came; let the load balancer send version 2 (`send-proxy-v2` of HAProxy)")]
    Missing,
    /// The text form.
    #[error(
        "a PROXY header of version 1 came; let the load balancer send version 2 (`send-proxy-v2` of HAProxy)"
    )]
    Version1,
    /// A version or command that the protocol does not have.
    #[error("a PROXY header of an unknown version or command came")]
    Version,
    /// Longer than is read.
    #[error("a PROXY header is longer than {LONGEST} bytes")]
    Long,
    /// Shorter than its addresses, or cut in a field.
    #[error("a PROXY header ends in the middle of a field")]
    Cut,
    /// A family or transport that cannot be a client's here.
    #[error("a PROXY header speaks of something else than TCP over IPv4, IPv6 or a unix socket")]
    Family,
    /// The checksum does not hold.
    #[error("a PROXY header's checksum does not hold")]
    Checksum,
}

/// Reads a header from the beginning of what came, and its length in bytes; none while more must come. What is no header is known
/// at its first wrong byte.
pub fn read(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderFault> {
    let beginning = &bytes[..bytes.len().min(SIGNATURE.len())];
    if !SIGNATURE.starts_with(beginning) {
        return match bytes.len().min(VERSION_1.len()) {
            known if !VERSION_1.starts_with(&bytes[..known]) => Err(HeaderFault::Missing),
            known if known == VERSION_1.len() => Err(HeaderFault::Version1),
            _ => Ok(None),
        };
    }
    let Some([command, family, high, low, rest @ ..]) = bytes.get(SIGNATURE.len()..) else {
        return Ok(None);
    };
    let local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderFault::Version),
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > LONGEST {
        return Err(HeaderFault::Long);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    if local {
        return Ok(Some((Header::Own, FIXED + length)));
    }
    let (header, fields) = addresses(*family, body)?;
    check(&bytes[..FIXED + length], fields)?;
    Ok(Some((header, FIXED + length)))
}

/// The addresses, and the fields after them.
fn addresses(family: u8, body: &[u8]) -> Result<(Header, &[u8]), HeaderFault> {
    match family {
        // Unspecified: whatever follows says nothing.
        0x00 => Ok((Header::Own, &[])),
        0x11 => {
            let (octets, fields) = body.split_first_chunk::<12>().ok_or(HeaderFault::Cut)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *octets;
            let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            Ok((proxied(source.into(), destination.into(), ports), fields))
        }
        0x21 => {
            let (source, rest) = body.split_first_chunk::<16>().ok_or(HeaderFault::Cut)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(HeaderFault::Cut)?;
            let (ports, fields) = rest.split_first_chunk::<4>().ok_or(HeaderFault::Cut)?;
            let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
            Ok((
                proxied(source.to_canonical(), destination.to_canonical(), *ports),
                fields,
            ))
        }
        // A unix socket's two paths say nothing about where a client is.
        0x31 => Ok((Header::Own, body.get(216..).ok_or(HeaderFault::Cut)?)),
        _ => Err(HeaderFault::Family),
    }
}

fn proxied(source: IpAddr, destination: IpAddr, ports: [u8; 4]) -> Header {
    let [a, b, c, d] = ports;
    Header::Proxied(ProxyHeader {
        source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    })
}

/// Walks over the fields, and holds the checksum, where there is one, against the whole header.
fn check(header: &[u8], mut fields: &[u8]) -> Result<(), HeaderFault> {
    while let [kind, high, low, rest @ ..] = fields {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, next) = rest.split_at_checked(length).ok_or(HeaderFault::Cut)?;
        if *kind == CRC32C {
            let at = header.len() - rest.len();
            let said = <[u8; 4]>::try_from(value).map_err(|_| HeaderFault::Checksum)?;
            if checksum(header, at) != u32::from_be_bytes(said) {
                return Err(HeaderFault::Checksum);
            }
        }
        fields = next;
    }
    if fields.is_empty() {
        Ok(())
    } else {
        Err(HeaderFault::Cut)
    }
}

/// The checksum over the header with zeros in its own place (section 2.2.3).
fn checksum(header: &[u8], at: usize) -> u32 {
    const ALGORITHM: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let mut digest = ALGORITHM.digest();
    digest.update(&header[..at]);
    digest.update(&[0; 4]);
    digest.update(&header[at + 4..]);
    digest.finalize()
}

#[cfg(test)]
mod tests;
