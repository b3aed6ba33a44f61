//! A remote machine in tests: its key, its certificate, and the tunnel that it opens.
use crate::stand::Stand;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use sallyport_gateway::session::certificate::Certificate;
use sallyport_gateway::tls::machine::GATEWAY_NAME;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What carries a machine's connections.
pub(crate) type Tunnel = SendRequest<Full<Bytes>>;
/// One connection that a tunnel carries.
pub(crate) type Carried = TokioIo<Upgraded>;

/// A machine's key and what was signed for it.
pub(crate) struct Machine {
    key: KeyPair,
    pub(crate) certificate_pem: String,
}

impl Machine {
    /// A machine whose certificate is good for a session.
    pub(crate) fn new(stand: &Stand, run: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let issued = stand.tunnels.issue(run, &request.pem().unwrap()).unwrap();
        let certificate = Certificate {
            fingerprint: issued.fingerprint,
            expires_at: issued.expires_at,
        };
        stand.sessions.certify(run, certificate).unwrap();
        Self {
            key,
            certificate_pem: issued.pem,
        }
    }

    /// A machine with a certificate that is signed by the stand's own authority, but says what is given.
    pub(crate) fn forged(stand: &Stand, run: &str, until: SystemTime, use_: ExtendedKeyUsagePurpose) -> Self {
        let read = |file| std::fs::read_to_string(stand.folder.path().join("tunnel-ca").join(file)).unwrap();
        let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), authority).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("sallyport://session/{run}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
        params.extended_key_usages = vec![use_];
        params.not_before = (SystemTime::now() - Duration::from_secs(7200)).into();
        params.not_after = until.into();
        let certificate_pem = params.signed_by(&key, &issuer).unwrap().pem();
        Self { key, certificate_pem }
    }

    /// TLS with the gateway's tunnel. With TLS 1.3 a refusal of the certificate is read only later.
    pub(crate) async fn tls(&self, stand: &Stand, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots(stand.tunnels.certificate_pem()))
            .with_client_auth_cert(certificates(&self.certificate_pem), key)
            .unwrap();
        shake(stand, config, alpn).await
    }

    /// An open tunnel.
    pub(crate) async fn open(&self, stand: &Stand) -> Tunnel {
        let stream = self.tls(stand, &["h2"]).await.unwrap();
        speak(stream).await.unwrap()
    }
}

/// TLS without a certificate.
pub(crate) async fn nobody(stand: &Stand) -> std::io::Result<TlsStream<TcpStream>> {
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots(stand.tunnels.certificate_pem()))
        .with_no_client_auth();
    shake(stand, config, &["h2"]).await
}

async fn shake(
    stand: &Stand,
    mut config: rustls::ClientConfig,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    config.alpn_protocols = alpn.iter().map(|offer| offer.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(stand.tunnel).await?;
    let name = ServerName::try_from(GATEWAY_NAME).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// HTTP/2 on a stream.
pub(crate) async fn speak(stream: TlsStream<TcpStream>) -> hyper::Result<Tunnel> {
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Asks for a connection.
pub(crate) async fn connect(tunnel: &Tunnel, authority: &str) -> hyper::Result<Response<Incoming>> {
    let request = Request::connect(authority)
        .body(Full::<Bytes>::default())
        .unwrap();
    let mut tunnel = tunnel.clone();
    tunnel.ready().await?;
    tunnel.send_request(request).await
}

/// A connection that the gateway accepts.
pub(crate) async fn carry(tunnel: &Tunnel, authority: &str) -> Carried {
    let mut response = connect(tunnel, authority).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap())
}

/// TLS inside a carried connection, trusting the authority of leaves alone.
pub(crate) async fn tls_inside<S>(stand: &Stand, stream: S, name: &str) -> TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    shake_inside(stand, stream, ServerName::try_from(name.to_owned()).unwrap()).await
}

/// The same with an address as the server's name.
pub(crate) async fn tls_inside_any<S>(stand: &Stand, stream: S, name: std::net::Ipv4Addr) -> TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    shake_inside(stand, stream, ServerName::from(std::net::IpAddr::from(name))).await
}

async fn shake_inside<S>(stand: &Stand, stream: S, name: ServerName<'static>) -> TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots(&stand.ca_pem))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// Status and document of a refusal.
pub(crate) async fn refusal(response: Response<Incoming>) -> (u16, serde_json::Value) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    rustls_pemfile::certs(&mut pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap()
}

fn roots(pem: &str) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(pem) {
        roots.add(certificate).unwrap();
    }
    roots
}
