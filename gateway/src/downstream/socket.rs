//! Listening sockets of the proxy, TCP or unix, and what they accept.
use crate::stream::Stream;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};

/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const BACKOFF: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// In the file system.
    Unix(UnixListener),
}

/// A connection, and the addresses of its two ends where it has some.
#[derive(Debug)]
pub struct Accepted {
    /// The bytes.
    pub stream: Stream,
    /// The client's.
    pub peer: Option<SocketAddr>,
    /// The one that was dialled.
    pub local: Option<SocketAddr>,
}

impl Socket {
    /// The next connection. Cancel safe.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "the connection was gone");
                }
                Ok(Accepted {
                    peer: Some(SocketAddr::new(peer.ip().to_canonical(), peer.port())),
                    local: stream.local_addr().ok(),
                    stream: Stream::new(stream),
                })
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted {
                    stream: Stream::new(stream),
                    peer: None,
                    local: None,
                })
            }
        }
    }

    /// Where it listens, if that is an address.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }
}

/// Says that nothing could be accepted, and waits a little.
pub async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(BACKOFF).await;
}
