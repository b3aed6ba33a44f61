//! TLS towards origins: faults told with their reason, resumption within a session, client certificates.
use crate::origin::{NAMES, Origin, Roots};
use crate::stand::{POLICY, Stand, authorization, read_all, read_head};
use rcgen::{CertificateParams, CertifiedKey};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::resolve::Resolver;
use sallyport_gateway::secret::{SecretStore, Value};
use sallyport_gateway::upstream::Outlet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const DAY: Duration = Duration::from_secs(86_400);

fn params() -> CertificateParams {
    CertificateParams::new(NAMES.map(str::to_owned)).unwrap()
}

fn der(key: &rcgen::KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

fn server(leaf: CertificateDer<'static>, key: &rcgen::KeyPair) -> TlsAcceptor {
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], der(key))
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn signed(roots: &Roots, params: &CertificateParams) -> TlsAcceptor {
    let (leaf, key) = roots.sign(params);
    server(leaf.der().clone(), &key)
}

/// Answers one request with a text and closes.
async fn answer(stream: &mut TlsStream<TcpStream>, text: &str) {
    read_head(stream).await;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    // A client that leaves early is part of some tests.
    let _sent = stream.write_all(answer.as_bytes()).await;
    let _closed = stream.shutdown().await;
}

async fn is_told(stand: &Stand, kind: &str, words: &str) {
    let told = stand.get("allowed.test", "/").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains(kind) && told.contains(words),
        "{words}: {told}"
    );
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::UpstreamFailed);
    assert!(record.reason.contains(words), "{}", record.reason);
}

#[tokio::test]
async fn a_certificate_that_is_not_acceptable_is_told_with_the_reason() {
    let (roots, strangers) = (Roots::new(), Roots::new());
    let (mut expired, mut early) = (params(), params());
    expired.not_after = (SystemTime::now() - DAY).into();
    early.not_before = (SystemTime::now() + DAY).into();
    let other = CertificateParams::new(["elsewhere.test".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).unwrap();
    for (acceptor, words) in [
        (signed(&roots, &expired), "it has expired"),
        (signed(&roots, &early), "it is not valid yet"),
        (signed(&roots, &other), "it is for another name"),
        (signed(&strangers, &params()), "its issuer `CN=origins"),
        (server(cert.der().clone(), &signing_key), "it is self-signed"),
    ] {
        let origin = Origin::accepting(acceptor, |_| async {}).await;
        let stand = Stand::new(&roots, origin.port).await;
        is_told(&stand, "tls_certificate_error", words).await;
    }
}

#[tokio::test]
async fn a_handshake_that_the_origin_ends_is_told_with_the_reason() {
    for (alert, words) in [
        (70, "neither TLS 1.2 nor TLS 1.3"),
        (40, "shares no cipher"),
        (112, "does not know this name"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(&[0x15, 3, 1, 0, 2, 2, alert]).await.unwrap();
                read_all(&mut stream).await;
            }
        });
        let stand = Stand::new(&Roots::new(), port).await;
        is_told(&stand, "tls_alert_received", words).await;
    }
}

/// `GET /` of a session other than the stand's first.
async fn get_as(stand: &Stand, run: &str) -> String {
    let token = stand.sessions.view(run, "").unwrap().proxy_token;
    let at = stand.at("allowed.test");
    let mut tunnel = stand.dial().await;
    let request = format!(
        "CONNECT {at} HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: {}\r\n\r\n",
        authorization(run, &token)
    );
    tunnel.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut tunnel).await.starts_with("HTTP/1.1 200"));
    let mut stream = stand
        .tls_over(tunnel, Some("allowed.test"), &["http/1.1"])
        .await
        .unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_all(&mut stream).await
}

#[tokio::test]
async fn a_session_resumes_its_own_tls_and_never_another_ones() {
    let roots = Roots::new();
    let origin = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        let kind = format!("{:?}", stream.get_ref().1.handshake_kind().unwrap());
        answer(&mut stream, &kind).await;
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put_for("run-2", POLICY);
    let mut kinds = Vec::new();
    for run in ["run-1", "run-1", "run-2", "run-2", "run-1"] {
        let told = get_as(&stand, run).await;
        kinds.push(told.rsplit_once("\r\n").unwrap().1.to_owned());
    }
    assert!(
        !kinds[0].contains("Resumed") && !kinds[2].contains("Resumed"),
        "{kinds:?}"
    );
    assert_eq!([&kinds[1], &kinds[3], &kinds[4]], ["Resumed"; 3], "{kinds:?}");
}

const WITH_CERTIFICATE: &str = r#"
version: 1
name: mutual
credentials:
  me: {from: {store: me}, hosts: [allowed.test], in: [client-certificate]}
rules:
  - {id: a, to: {host: [allowed.test, other.test, 127.0.0.0/8], port: PORT, private: true}, use: [me], effect: allow}
"#;

/// Certificate and key of a client in PEM.
fn client(roots: &Roots, name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let (certificate, key) = roots.sign(&params);
    format!("{}{}", certificate.pem(), key.serialize_pem())
}

/// An origin that wants a certificate of `clients` and notes each that it is shown.
async fn mutual(
    roots: &Roots,
    clients: &Roots,
    alpn: &[&str],
) -> (Origin, Arc<Mutex<Vec<CertificateDer<'static>>>>) {
    let mut trusted = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut clients.pem().as_bytes()) {
        trusted.add(certificate.unwrap()).unwrap();
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(trusted)).build().unwrap();
    let (leaf, key) = roots.sign(&params());
    let mut config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![leaf.der().clone()], der(&key))
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|offer| offer.as_bytes().to_vec()).collect();
    let shown: Arc<Mutex<Vec<CertificateDer<'static>>>> = Arc::default();
    let noting = shown.clone();
    let origin = Origin::accepting(TlsAcceptor::from(Arc::new(config)), move |mut stream| {
        let first = stream.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned();
        noting.lock().unwrap().push(first);
        async move {
            while !read_head(&mut stream).await.is_empty() {
                let sent = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
                if sent.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (origin, shown)
}

/// A stand whose session has the credential `me`, with this value.
async fn stand_as(roots: &Roots, port: u16, value: &str) -> (Stand, SecretStore) {
    let stand = Stand::new(roots, port).await;
    let store = SecretStore::open(stand.folder.path()).unwrap();
    store.set("me", Value::new(value.as_bytes().to_vec())).unwrap();
    stand.put(WITH_CERTIFICATE);
    (stand, store)
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_permit_carries_it_and_nowhere_else() {
    let (roots, clients) = (Roots::new(), Roots::new());
    let (origin, shown) = mutual(&roots, &clients, &["http/1.1"]).await;
    let (stand, _store) = stand_as(&roots, origin.port, &client(&clients, "ada")).await;
    let view = stand.sessions.view("run-1", "").unwrap();
    assert!(
        view.warnings.is_empty() && view.credentials.is_empty(),
        "{view:?}"
    );
    for _ in 0..2 {
        let told = stand.get("allowed.test", "/").await;
        assert!(
            told.starts_with("HTTP/1.1 200 ") && told.ends_with("ok"),
            "{told}"
        );
    }
    assert_eq!(
        shown.lock().unwrap().len(),
        1,
        "the second request goes on the kept connection"
    );
    let records = stand.records(2).await;
    assert!(
        records.iter().all(|record| record.credentials_used == ["me"]),
        "{records:#?}"
    );
    // The credential is not for this host, though the rule uses it.
    let told = stand.get("other.test", "/").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ")
            && told.contains("tls_alert_received")
            && told.contains("client certificate"),
        "{told}"
    );
    stand.put(&WITH_CERTIFICATE.replace("use: [me], ", ""));
    let told = stand.get("allowed.test", "/").await;
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("in: [client-certificate]"),
        "a connection with a certificate serves no request that may not show it: {told}"
    );
    assert_eq!(shown.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_missing_client_certificate_is_told_over_http2_too() {
    let (roots, clients) = (Roots::new(), Roots::new());
    let (origin, _) = mutual(&roots, &clients, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    is_told(&stand, "tls_alert_received", "client certificate").await;
}

#[tokio::test]
async fn a_new_client_certificate_is_shown_on_a_new_connection() {
    let (roots, clients) = (Roots::new(), Roots::new());
    let (origin, shown) = mutual(&roots, &clients, &["http/1.1"]).await;
    let (stand, store) = stand_as(&roots, origin.port, &client(&clients, "ada")).await;
    stand.get("allowed.test", "/").await;
    let next = Value::new(client(&clients, "ada, renewed").into_bytes());
    store.set("me", next).unwrap();
    stand.sessions.refresh_secrets().unwrap();
    stand.get("allowed.test", "/").await;
    let shown = shown.lock().unwrap();
    assert_eq!(shown.len(), 2);
    assert_ne!(shown[0], shown[1]);
}

#[tokio::test]
async fn a_client_certificate_that_cannot_be_used_is_a_warning_and_a_readable_refusal() {
    let (roots, clients) = (Roots::new(), Roots::new());
    let (origin, shown) = mutual(&roots, &clients, &["http/1.1"]).await;
    let (one, other) = (client(&clients, "ada"), client(&clients, "bob"));
    let (certificate, _) = one.split_at(one.find("-----BEGIN PRIVATE").unwrap());
    let (_, key) = other.split_at(other.find("-----BEGIN PRIVATE").unwrap());
    for (value, why) in [
        (format!("{certificate}{key}"), "not that of its certificate"),
        (certificate.to_owned(), "no private key"),
        (key.to_owned(), "no certificate"),
    ] {
        let (stand, _store) = stand_as(&roots, origin.port, &value).await;
        let warnings = stand.sessions.view("run-1", "").unwrap().warnings;
        assert!(
            warnings.iter().any(|warning| warning.contains(why)),
            "{warnings:?}"
        );
        let told = stand.get("allowed.test", "/").await;
        assert!(
            told.starts_with("HTTP/1.1 502 ")
                && told.contains("proxy_configuration_error")
                && told.contains(why),
            "{told}"
        );
    }
    assert!(shown.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_reload_exchanges_the_operators_authorities_for_new_connections_and_leaves_kept_ones_behind() {
    for alpn in ["http/1.1", "h2"] {
        let (sessions, operators, others) = (Roots::new(), Roots::new(), Roots::new());
        let origin = Origin::echo(&operators, &[alpn]).await;
        let stand = Stand::with_outlet(&sessions, origin.port, Limits::default(), |_| Outlet {
            roots_pem: operators.pem().into_bytes(),
            ..Outlet::new(Resolver::without_servers())
        })
        .await;
        let passes = async || {
            let told = stand.get("allowed.test", "/").await;
            assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        };
        let trust = |pem: &str| stand.gateway.trust_upstream(pem.as_bytes());
        passes().await;
        passes().await;
        assert_eq!(origin.connections(), 1, "{alpn}: the connection is kept");

        assert!(!trust(&operators.pem()).unwrap().changed);
        passes().await;
        assert_eq!(
            origin.connections(),
            1,
            "{alpn}: the same authorities change nothing"
        );

        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(trust(broken).is_err(), "no certificate");
        passes().await;
        assert_eq!(
            origin.connections(),
            1,
            "{alpn}: what cannot be used changes nothing"
        );

        let loaded = trust(&others.pem()).unwrap();
        assert_eq!((loaded.own, loaded.changed), (1, true));
        let told = stand.get("allowed.test", "/").await;
        assert!(told.starts_with("HTTP/1.1 502 "), "{alpn}: {told}");
        assert_eq!(origin.connections(), 2, "{alpn}: dialled anew");

        trust(&operators.pem()).unwrap();
        passes().await;
        assert_eq!(origin.connections(), 3, "{alpn}");
    }
}
