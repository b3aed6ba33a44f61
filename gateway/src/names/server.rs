//! The name servers that the gateway asks: in plain DNS, or by DNS over TLS (RFC 7858), as an operator writes them.
use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
use sallyport_policy::Host;
use std::net::{IpAddr, SocketAddr};

/// Port of DNS (RFC 1035).
const PORT: u16 = 53;
/// Port of DNS over TLS (RFC 7858 section 3.1).
const TLS_PORT: u16 = 853;
/// What comes before the address of a server that is spoken to over TLS.
const TLS: &str = "tls://";

/// One name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    address: SocketAddr,
    /// The name or address that its certificate must be for; none where it is asked in plain.
    certified: Option<String>,
}

/// A server that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "neither ADDRESS or ADDRESS:PORT, nor tls://ADDRESS[:PORT][#NAME]; the address is one of IP, since there is nobody yet to ask for a \
     name's"
)]
pub struct NoNameServer;

impl NameServer {
    /// Reads `ADDRESS[:PORT]`, or `tls://ADDRESS[:PORT][#NAME]`, where the name is that of its certificate.
    pub fn read(text: &str) -> Result<Self, NoNameServer> {
        let Some(text) = text.strip_prefix(TLS) else {
            return Ok(Self::plain(address(text, PORT)?));
        };
        let (place, name) = match text.split_once('#') {
            None => (text, None),
            Some((place, name)) => (place, Some(name)),
        };
        let address = address(place, TLS_PORT)?;
        let certified = match name.map(Host::parse) {
            None => address.ip().to_string(),
            Some(Ok(Host::Name(name))) => name.to_string(),
            Some(_) => return Err(NoNameServer),
        };
        Ok(Self {
            address,
            certified: Some(certified),
        })
    }

    /// One that is asked in plain DNS.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            certified: None,
        }
    }

    /// Whether it is asked over TLS.
    pub fn is_over_tls(&self) -> bool {
        self.certified.is_some()
    }

    /// As the resolver is told.
    pub(super) fn config(&self) -> NameServerConfig {
        let mut connections = match &self.certified {
            Some(certified) => vec![ConnectionConfig::tls(certified.as_str().into())],
            None => vec![ConnectionConfig::udp(), ConnectionConfig::tcp()],
        };
        for connection in &mut connections {
            connection.port = self.address.port();
        }
        NameServerConfig::new(self.address.ip(), true, connections)
    }
}

fn address(text: &str, port: u16) -> Result<SocketAddr, NoNameServer> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    text.parse()
        .or_else(|_| {
            bare.unwrap_or(text)
                .parse::<IpAddr>()
                .map(|address| SocketAddr::new(address, port))
        })
        .map_err(|_| NoNameServer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_in_each_form() {
        for (text, address, certified) in [
            ("192.0.2.1", "192.0.2.1:53", None),
            ("[::1]:5353", "[::1]:5353", None),
            ("tls://192.0.2.1", "192.0.2.1:853", Some("192.0.2.1")),
            ("tls://[2001:db8::1]", "[2001:db8::1]:853", Some("2001:db8::1")),
            (
                "tls://192.0.2.1:8853#DNS.test.",
                "192.0.2.1:8853",
                Some("dns.test"),
            ),
        ] {
            let read = NameServer::read(text).unwrap();
            assert_eq!(read.address, address.parse().unwrap(), "{text}");
            assert_eq!(read.certified.as_deref(), certified, "{text}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "",
            "dns.test",
            "tls://",
            "tls://dns.test",
            "tls://192.0.2.1#",
            "tls://192.0.2.1#a b",
            "192.0.2.1#dns.test",
            "https://192.0.2.1",
        ] {
            assert_eq!(NameServer::read(text), Err(NoNameServer), "{text}");
        }
    }
}
