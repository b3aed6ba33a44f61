//! What a connection to the explicit proxy begins with. Pure.
use super::proxy_header::{SIGNATURE, VERSION_1};
use super::socks::wire;
use crate::sniff::{ClientHello, LOOK_BYTES, Protocol, sniff};

/// The version byte of SOCKS 4.
const SOCKS4: u8 = 4;

/// What a connection to the proxy begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// HTTP/1.x to the proxy.
    Http1,
    /// HTTP/2 to the proxy.
    Http2,
    /// TLS to the proxy itself.
    Tls(ClientHello),
    /// SOCKS 5.
    Socks5,
    /// SOCKS 4, which is not served.
    Socks4,
    /// A load balancer's header, where none is read.
    ProxyHeader,
    /// Something else.
    Unknown,
    /// Not enough yet.
    Incomplete,
}

/// Looks at the first bytes. Never fails.
pub fn opening(bytes: &[u8]) -> Opening {
    match bytes.first() {
        Some(&wire::VERSION) => return Opening::Socks5,
        Some(&SOCKS4) => return Opening::Socks4,
        _ => {}
    }
    for header in [SIGNATURE.as_slice(), VERSION_1] {
        if bytes.starts_with(header) {
            return Opening::ProxyHeader;
        }
        if header.starts_with(bytes) {
            return Opening::Incomplete;
        }
    }
    match sniff(bytes) {
        Protocol::Tls(hello) => Opening::Tls(hello),
        Protocol::Http => Opening::Http1,
        Protocol::Http2Preface => Opening::Http2,
        Protocol::Incomplete if bytes.len() < LOOK_BYTES => Opening::Incomplete,
        _ => Opening::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_speaks_is_known_by_its_first_bytes() {
        for (bytes, right) in [
            (b"".as_slice(), Opening::Incomplete),
            (b"\x05", Opening::Socks5),
            (b"\x04\x01", Opening::Socks4),
            (b"P", Opening::Incomplete),
            (b"PROXY", Opening::Incomplete),
            (b"PROXY ", Opening::ProxyHeader),
            (b"PROPFIND ", Opening::Http1),
            (b"CONNECT a.test:443 HTTP/1.1", Opening::Http1),
            (b"\r\n\r\n", Opening::Incomplete),
            (b"\r\n\r\nGET / HTTP/1.1", Opening::Http1),
            (b"\r\n\r\n\0\r\nQUIT\n", Opening::ProxyHeader),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Opening::Http2),
            (b"\x80\x01", Opening::Unknown),
            (b"SSH-2.0-x", Opening::Unknown),
        ] {
            assert_eq!(opening(bytes), right, "{bytes:?}");
        }
    }
}
