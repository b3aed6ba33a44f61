//! Where a local connection wants to go: asked of the kernel where it was redirected, else of its own CONNECT.
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest head of a CONNECT, in bytes.
const HEAD_BYTES: usize = 8 * 1024;
/// For a whole head. Beyond it: closed.
const HEAD: Duration = Duration::from_secs(10);

/// Where to, and how the answer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The packet filter sent it here.
    Redirected(SocketAddr),
    /// It asked for it: HOST:PORT as it was written.
    Asked(String),
}

/// Why it wants to go nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTarget {
    /// It left, or was too slow.
    #[error("the connection ended before it said where to: {0}")]
    Gone(#[from] io::Error),
    /// It asks for something else than a connection.
    #[error(
        "this is a tunnel: it takes `CONNECT host:port HTTP/1.1` (as a proxy for https), or connections redirected to it"
    )]
    Other,
}

/// Asks.
pub(super) async fn target(stream: &mut TcpStream) -> Result<Target, NoTarget> {
    let local = stream.local_addr()?;
    if let Some(original) = original(stream, local) {
        return Ok(Target::Redirected(original));
    }
    let head = timeout(HEAD, head(stream)).await.map_err(io::Error::from)??;
    asked(&head).map(Target::Asked).ok_or(NoTarget::Other)
}

/// `SO_ORIGINAL_DST`; none where it was dialled itself.
fn original(stream: &TcpStream, local: SocketAddr) -> Option<SocketAddr> {
    let unmapped = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let local = unmapped(local);
    let original = if local.is_ipv4() {
        sockopt::ip_original_dst(stream).map(SocketAddr::from)
    } else {
        sockopt::ipv6_original_dst(stream).map(SocketAddr::from)
    };
    original.ok().map(unmapped).filter(|original| *original != local)
}

/// Reads no further than a head goes.
async fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its head is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

fn asked(head: &[u8]) -> Option<String> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (method, authority, version) = (words.next()?, words.next()?, words.next()?);
    let fits = method == "CONNECT"
        && !authority.is_empty()
        && version.starts_with("HTTP/1.")
        && words.next().is_none();
    fits.then(|| authority.to_owned())
}

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn a_connect_names_its_authority() {
        let head = b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n";
        assert_eq!(asked(head).as_deref(), Some("allowed.test:443"));
    }

    #[test]
    fn anything_else_names_none() {
        for head in [
            "GET http://allowed.test/ HTTP/1.1\r\n\r\n",
            "CONNECT  HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/2\r\n\r\n",
            "CONNECT a:1\r\n\r\n",
            "\r\n\r\n",
            "",
        ] {
            assert_eq!(asked(head.as_bytes()), None, "{head:?}");
        }
    }
}
