//! TLS towards machines: the leaf for exactly what was dialled, and the name that the client asks for held against it.
pub mod authorities;
pub mod authority;
pub mod leaf;
pub mod machine;

use crate::sniff::ClientHello;
use crate::stream::Stream;
use leaf::{LeafError, Leaves};
use sallyport_policy::{Destination, Host};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";
/// Alert of RFC 6066 section 3.
const UNRECOGNIZED_NAME: u8 = 112;
/// Alert of RFC 8446 section 6.2: nobody here may vouch for the name.
const ACCESS_DENIED: u8 = 49;
/// Alert of RFC 7301 section 3.2.
const NO_APPLICATION_PROTOCOL: u8 = 120;
/// PostgreSQL's name in ALPN (its documentation, 55.2.11).
const POSTGRES: &[u8] = b"postgresql";

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
    /// The SNI names something else, and the real name may be hidden.
    #[error(
        "the TLS server name `{asked}` is not the dialled `{dialled}`, and Encrypted Client Hello hides the name that is meant; turn \
         ECH off in the client, or let it ask this gateway for names, which hands out no ECH keys"
    )]
    Hidden {
        /// As sent, escaped.
        asked: String,
        /// What was dialled.
        dialled: String,
    },
    /// None of the offers can be served.
    #[error("the client offers only `{0}` (ALPN), and this gateway speaks `h2`, `http/1.1` and `postgresql`")]
    NoProtocol(String),
    /// No leaf.
    #[error(transparent)]
    Leaf(#[from] LeafError),
    /// Too many have begun and not ended.
    #[error("the session has {0} TLS handshakes at once, and none of them ended in time")]
    Crowded(usize),
    /// Too slow.
    #[error("the TLS handshake did not end within {0:?}")]
    Timeout(Duration),
    /// The client ended it.
    #[error("the TLS handshake failed: {0}; does the client trust the gateway's authority?")]
    Failed(String),
}

/// How to accept TLS.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// What was dialled.
    pub destination: &'a Destination,
    /// Fingerprint of the authority that the machine was told to trust.
    pub trusted: Option<&'a str>,
    /// The upstream is known to speak no HTTP/2: who offers both agrees to what the upstream speaks.
    pub http1_only: bool,
    /// It is not known yet whose the connection is: the leaf is kept apart from those of sessions.
    pub stranger: bool,
    /// For the whole handshake.
    pub limit: Duration,
}

/// Accepts TLS as the dialled host.
pub async fn accept(
    leaves: &Leaves,
    mut stream: Stream,
    hello: &ClientHello,
    Terms {
        destination,
        trusted,
        http1_only,
        stranger,
        limit,
    }: Terms<'_>,
) -> Result<Stream, HandshakeFault> {
    if let Err(fault) = check_name(hello, &destination.host) {
        refuse(&mut stream, UNRECOGNIZED_NAME).await;
        return Err(fault);
    }
    if let Err(fault) = check_offers(hello) {
        refuse(&mut stream, NO_APPLICATION_PROTOCOL).await;
        return Err(fault);
    }
    let leaf = match stranger {
        true => leaves.for_stranger(&destination.host),
        false => leaves.for_host(&destination.host, trusted),
    };
    let mut config = match leaf {
        Ok(config) => config,
        Err(error) => {
            refuse(&mut stream, ACCESS_DENIED).await;
            return Err(error.into());
        }
    };
    if offers(hello, POSTGRES) {
        Arc::make_mut(&mut config).alpn_protocols = vec![POSTGRES.to_vec()];
    } else if http1_only && offers(hello, HTTP1) {
        Arc::make_mut(&mut config).alpn_protocols = vec![HTTP1.to_vec()];
    }
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
    if !bracketed && Host::parse(asked).is_ok_and(|host| host == *dialled) {
        return Ok(());
    }
    let asked = asked.chars().take(255).flat_map(char::escape_default).collect();
    let dialled = dialled.to_string();
    Err(match hello.ech {
        true => HandshakeFault::Hidden { asked, dialled },
        false => HandshakeFault::Name { asked, dialled },
    })
}

/// What passes unread must not hide a name: the one inside decides where it leads.
pub fn check_open(hello: &ClientHello) -> Result<(), &'static str> {
    match hello.ech {
        true => Err(
            "the TLS hello has the extension of Encrypted Client Hello, which may hide another name than the one that the rule lets \
             through unread; turn ECH off in the client, or let the rule have it read (without `protocol: tls`)",
        ),
        false => Ok(()),
    }
}

/// No offers at all mean HTTP/1.1; offers among which there is nothing to speak end the handshake (RFC 7301 section 3.2).
fn check_offers(hello: &ClientHello) -> Result<(), HandshakeFault> {
    let known = [HTTP1, HTTP2, POSTGRES];
    if hello.alpn.is_empty() || known.iter().any(|protocol| offers(hello, protocol)) {
        return Ok(());
    }
    let shown = hello
        .alpn
        .iter()
        .take(8)
        .map(|offer| offer.escape_ascii().to_string());
    Err(HandshakeFault::NoProtocol(shown.collect::<Vec<_>>().join("`, `")))
}

fn offers(hello: &ClientHello, protocol: &[u8]) -> bool {
    hello.alpn.iter().any(|offer| offer == protocol)
}

/// Ends the handshake by a fatal alert (RFC 8446 section 6).
async fn refuse(stream: &mut Stream, alert: u8) {
    if let Err(error) = stream.write_all(&[0x15, 3, 3, 0, 2, 2, alert]).await {
        tracing::debug!(%error, "the alert did not reach the client");
        return;
    }
    if let Err(error) = stream.shutdown().await {
        tracing::debug!(%error, "the connection was gone");
    }
}
