//! What is measured: a way from the client to the origin, and whom the client trusts on it.
use crate::process::Process;
use anyhow::Context;
use base64::Engine;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connections that go under one name of a proxy's user; a gateway bounds them for each session.
const FOR_ONE_USER: usize = 900;

/// One way to the origin.
#[derive(Debug)]
pub(crate) struct Target {
    /// Name in the table.
    pub(crate) name: &'static str,
    /// How connections are made.
    pub(crate) way: Way,
    /// What stands between; none where nothing does.
    pub(crate) process: Option<Process>,
    tls: [Arc<ClientConfig>; 2],
}

/// How a connection comes to the origin.
#[derive(Debug)]
pub(crate) enum Way {
    /// To the origin itself.
    Direct,
    /// By CONNECT to this address, as one of these users (none: without a name).
    Connect(SocketAddr, Vec<User>),
    /// To the address that this name server gives, from where the kernel redirects it.
    Redirected(SocketAddr, User, Mutex<HashMap<String, Ipv4Addr>>),
}

/// Whom a proxy takes the client for.
#[derive(Debug, Clone, Default)]
pub(crate) struct User {
    /// `Proxy-Authorization`; empty where none is needed.
    pub(crate) authorization: String,
    /// The token that requests carry: a placeholder where values are put in its place.
    pub(crate) bearer: String,
}

impl User {
    /// One who shows a name and a password, and sends this token.
    pub(crate) fn new(name: &str, password: &str, bearer: &str) -> Self {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        Self {
            authorization: format!("Proxy-Authorization: Basic {pair}\r\n"),
            bearer: bearer.to_owned(),
        }
    }

    /// One whom nobody asks; the token has the length of a real one.
    pub(crate) fn nobody() -> Self {
        Self {
            authorization: String::new(),
            bearer: "x".repeat(40),
        }
    }
}

/// HTTP versions that a client may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// Where the origin serves it.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http1 => 443,
            Self::Http2 => 8443,
        }
    }
}

impl Target {
    /// A way on which the client trusts the authorities of `roots_pem`.
    pub(crate) fn new(
        name: &'static str,
        way: Way,
        process: Option<Process>,
        roots_pem: &[u8],
    ) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in rustls_pemfile::certs(&mut &roots_pem[..]) {
            roots.add(certificate?)?;
        }
        let offering = |offer: &[u8]| {
            let mut tls = ClientConfig::builder()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            tls.alpn_protocols = vec![offer.to_vec()];
            // Every connection is a new client's.
            tls.resumption = rustls::client::Resumption::disabled();
            Arc::new(tls)
        };
        Ok(Self {
            name,
            way,
            process,
            tls: [offering(b"http/1.1"), offering(b"h2")],
        })
    }

    /// The user of the connection with this number.
    pub(crate) fn user(&self, number: usize) -> User {
        match &self.way {
            Way::Direct => User::nobody(),
            Way::Connect(_, users) => users[number / FOR_ONE_USER % users.len()].clone(),
            Way::Redirected(_, user, _) => user.clone(),
        }
    }

    /// A TLS connection to a name of the origin. `number` tells which connection of the scenario it is.
    pub(crate) async fn connect(
        &self,
        host: &str,
        number: usize,
        version: Version,
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        let port = version.port();
        let stream = match &self.way {
            Way::Direct => dial((Ipv4Addr::LOCALHOST, port).into()).await?,
            Way::Connect(proxy, _) => {
                let user = self.user(number);
                let mut stream = dial(*proxy).await?;
                let head = format!(
                    "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{}\r\n",
                    user.authorization
                );
                stream.write_all(head.as_bytes()).await?;
                opened(&mut stream).await?;
                stream
            }
            Way::Redirected(server, _, known) => {
                let found = known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get(host)
                    .copied();
                let address = match found {
                    Some(address) => address,
                    None => crate::names::ask(*server, host).await?,
                };
                known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(host.to_owned(), address);
                dial((address, port).into()).await?
            }
        };
        let tls = match version {
            Version::Http1 => &self.tls[0],
            Version::Http2 => &self.tls[1],
        };
        let name = ServerName::try_from(host.to_owned())?;
        let connected = TlsConnector::from(tls.clone()).connect(name, stream).await;
        connected.with_context(|| format!("TLS by way of `{}`", self.name))
    }
}

async fn dial(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads the answer to a CONNECT; nothing follows it before the client speaks.
async fn opened(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(
            stream.read_buf(&mut head).await? > 0,
            "the proxy closed in the middle of its answer"
        );
    }
    let line = String::from_utf8_lossy(&head);
    let status = line.split(' ').nth(1).unwrap_or_default();
    anyhow::ensure!(
        status == "200",
        "the proxy refused: {}",
        line.lines().next().unwrap_or_default()
    );
    Ok(())
}
