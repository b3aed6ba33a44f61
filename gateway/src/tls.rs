//! TLS towards machines: the leaf for exactly what was dialled, and the name that the client asks for held against it.
pub mod authority;
pub mod leaf;

use crate::sniff::ClientHello;
use crate::stream::Stream;
use leaf::{LeafError, Leaves};
use sallyport_policy::{Destination, Host};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

/// Why no TLS connection came to be. Mostly the machine's doing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeFault {
    /// The SNI names something else than what was dialled.
    #[error("the TLS server name `{asked}` is not the dialled `{dialled}`")]
    Name {
        /// As sent, escaped.
        asked: String,
        /// What was dialled.
        dialled: String,
    },
    /// No leaf.
    #[error(transparent)]
    Leaf(#[from] LeafError),
    /// Too slow.
    #[error("the TLS handshake did not end within {0:?}")]
    Timeout(Duration),
    /// The client ended it.
    #[error("the TLS handshake failed: {0}; does the client trust the gateway's authority?")]
    Failed(String),
}

/// Accepts TLS as the dialled host. `limit` is for the whole handshake.
pub async fn accept(
    leaves: &Leaves,
    mut stream: Stream,
    hello: &ClientHello,
    destination: &Destination,
    limit: Duration,
) -> Result<Stream, HandshakeFault> {
    if let Err(fault) = check_name(hello, &destination.host) {
        refuse_name(&mut stream).await;
        return Err(fault);
    }
    let config = leaves.for_host(&destination.host)?;
    match tokio::time::timeout(limit, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => Ok(Stream::new(stream)),
        Ok(Err(error)) => Err(HandshakeFault::Failed(error.to_string())),
        Err(_) => Err(HandshakeFault::Timeout(limit)),
    }
}

/// Holds the name that the client asks for against what was dialled: no name, or the same in any case
/// and with one dot at its end (RFC 6066 section 3).
pub fn check_name(hello: &ClientHello, dialled: &Host) -> Result<(), HandshakeFault> {
    let Some(asked) = &hello.server_name else {
        return Ok(());
    };
    let bracketed = asked.starts_with('[');
    match Host::parse(asked) {
        Ok(host) if host == *dialled && !bracketed => Ok(()),
        _ => Err(HandshakeFault::Name {
            asked: asked.chars().take(255).flat_map(char::escape_default).collect(),
            dialled: dialled.to_string(),
        }),
    }
}

/// The fatal alert `unrecognized_name` (RFC 6066 section 3, RFC 8446 section 6).
async fn refuse_name(stream: &mut Stream) {
    const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];
    if let Err(error) = stream.write_all(&ALERT).await {
        tracing::debug!(%error, "the alert did not reach the client");
        return;
    }
    if let Err(error) = stream.shutdown().await {
        tracing::debug!(%error, "the connection was gone");
    }
}
