//! The origin: small answers, large ones, uploads, events with the time at which they were sent.
use crate::{clock, names};
use anyhow::Context;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio_rustls::TlsAcceptor;

/// Bytes of one large answer or upload.
pub(crate) const BULK: usize = 16 << 20;
/// Between two events.
const BEAT: Duration = Duration::from_millis(5);

/// 200 bytes of JSON.
static SMALL: LazyLock<Bytes> = LazyLock::new(|| {
    let frame = r#"{"id":1,"ok":true,"text":""}"#;
    let filler = "x".repeat(200 - frame.len());
    Bytes::from(frame.replace(r#""""#, &format!(r#""{filler}""#)))
});
/// Without a pattern, as archives are.
pub(crate) static LARGE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // G. Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..BULK / 8).flat_map(|_| next()).collect()
});

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Writes its authority down, listens, and serves until something fails.
pub(crate) async fn serve(
    http1: SocketAddr,
    http2: SocketAddr,
    dns: SocketAddr,
    folder: &Path,
) -> anyhow::Result<()> {
    let (only, both) = identity(folder)?;
    let names = UdpSocket::bind(dns).await.context("the name server")?;
    let (only_at, both_at) = (TcpListener::bind(http1).await?, TcpListener::bind(http2).await?);
    tokio::try_join!(names::serve(names), accept(only_at, only), accept(both_at, both))?;
    Ok(())
}

/// An authority and a leaf for every name below `bench.test`: with HTTP/1.1 alone, and with HTTP/2.
fn identity(folder: &Path) -> anyhow::Result<(Arc<ServerConfig>, Arc<ServerConfig>)> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Unlike the leaf's, which would be taken for a self-signed one.
    ca.distinguished_name.push(DnType::CommonName, "origin authority");
    let pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(vec!["*.bench.test".to_owned()])?;
    leaf.use_authority_key_identifier_extension = true;
    let chain = vec![leaf.signed_by(&key, &issuer)?.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut only = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    only.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    let mut both = only.clone();
    only.alpn_protocols = vec![b"http/1.1".to_vec()];
    both.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    std::fs::write(folder.join("origin-ca.pem"), pem)?;
    Ok((Arc::new(only), Arc::new(both)))
}

async fn accept(listener: TcpListener, tls: Arc<ServerConfig>) -> anyhow::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let (io, service) = (TokioIo::new(stream), service_fn(answer));
            // A client that breaks off counts the fault itself.
            if http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(io, service).await);
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                drop(builder.serve_connection(io, service).await);
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    let whole = |bytes: &Bytes| Response::new(Full::new(bytes.clone()).boxed_unsync());
    Ok(match request.uri().path() {
        "/json" => typed(whole(&SMALL), "application/json"),
        "/down" => typed(whole(&LARGE), "application/octet-stream"),
        "/up" => {
            let mut body = request.into_body();
            let mut count = 0;
            while let Some(Ok(frame)) = body.frame().await {
                count += frame.data_ref().map_or(0, Bytes::len);
            }
            whole(&Bytes::from(count.to_string()))
        }
        "/events" => typed(events(), "text/event-stream"),
        _ => {
            let mut none = whole(&Bytes::new());
            *none.status_mut() = StatusCode::NOT_FOUND;
            none
        }
    })
}

fn typed(mut answer: Answer, kind: &'static str) -> Answer {
    let kind = http::HeaderValue::from_static(kind);
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

/// Events without end, each with the time at which it was handed to the socket.
fn events() -> Answer {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let events = stream::unfold(beat, |mut beat| async move {
        beat.tick().await;
        let event = format!("data: {}\n\n", clock::now_ns());
        Some((Ok(Frame::data(Bytes::from(event))), beat))
    });
    Response::new(StreamBody::new(events).boxed_unsync())
}
