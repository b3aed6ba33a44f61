//! TLS towards machines: offers mirrored (case T05), hidden hellos refused.
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rustls::client::{EchGreaseConfig, EchMode};
use rustls::crypto::aws_lc_rs::hpke::ALL_SUPPORTED_SUITES;
use sallyport_gateway::control::types::Verdict;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

async fn agreed(stand: &Stand, offers: &[&str]) -> Option<String> {
    let stream = stand
        .tls(&stand.at("allowed.test"), "allowed.test", offers)
        .await
        .unwrap();
    let agreed = stream.get_ref().1.alpn_protocol();
    agreed.map(|agreed| String::from_utf8(agreed.to_vec()).unwrap())
}

#[tokio::test]
async fn a_client_agrees_to_what_the_origin_agreed_to_among_its_offers() {
    for (spoken, mirrored) in [("http/1.1", "http/1.1"), ("h2", "h2")] {
        let roots = Roots::new();
        let origin = Origin::echo(&roots, &[spoken]).await;
        let stand = Stand::new(&roots, origin.port).await;
        let both = ["h2", "http/1.1"];
        assert_eq!(
            agreed(&stand, &both).await.as_deref(),
            Some("h2"),
            "nothing is known yet"
        );
        let told = stand.get("allowed.test", "/").await;
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        assert_eq!(agreed(&stand, &both).await.as_deref(), Some(mirrored));
        assert_eq!(agreed(&stand, &["h2"]).await.as_deref(), Some("h2"), "translated");
        assert_eq!(agreed(&stand, &["http/1.1"]).await.as_deref(), Some("http/1.1"));
        assert_eq!(agreed(&stand, &[]).await, None);
    }
}

#[tokio::test]
async fn a_client_that_offers_nothing_is_served_http1() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.tls(&at, "allowed.test", &[]).await.unwrap();
    let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn offers_that_nobody_here_speaks_end_the_handshake_and_are_named() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let at = stand.at("allowed.test");
    let error = stand
        .tls(&at, "allowed.test", &["http/1.0", "grpc-exp"])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        (record.kind.as_str(), record.verdict),
        ("handshake", Verdict::Malformed)
    );
    assert!(
        record.reason.contains("`http/1.0`, `grpc-exp`"),
        "{}",
        record.reason
    );
}

/// Case T05: an origin that has no HTTP/2 cannot answer gRPC, which is said rather than tried.
#[tokio::test]
async fn grpc_to_an_origin_without_http2_is_a_clear_error_named_in_the_record() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let uri = format!("https://{}/pkg.Service/Call", stand.at("allowed.test"));
    let mut sender = stand.h2("allowed.test").await;
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
    ] {
        let request = Request::post(&uri)
            .header("content-type", kind)
            .body(Full::new(Bytes::from_static(b"x")))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        if kind.ends_with("web") {
            assert_eq!(answer.status(), StatusCode::OK);
            continue;
        }
        answer.into_body().collect().await.unwrap();
        let record = stand.records(1).await.pop().unwrap();
        assert_eq!(record.verdict, Verdict::UpstreamFailed);
        assert!(record.reason.contains("gRPC needs HTTP/2"), "{}", record.reason);
    }
    assert_eq!(origin.seen().len(), 1, "{:?}", origin.seen());
}

/// TLS with an Encrypted Client Hello as browsers send it to everybody.
async fn hidden(stand: &Stand, dialled: &str, sni: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let suite = ALL_SUPPORTED_SUITES[0];
    let (key, _) = suite.generate_key_pair().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut stand.ca_pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_ech(EchMode::Grease(EchGreaseConfig::new(suite, key)))
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(sni.to_owned()).unwrap();
    let stream = stand.tunnel(&stand.at(dialled)).await;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn a_browsers_empty_hidden_hello_is_served() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut stream = hidden(&stand, "allowed.test", "allowed.test").await.unwrap();
    let at = stand.at("allowed.test");
    let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn a_hidden_name_under_another_one_is_refused_and_the_reason_says_what_to_do() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let error = hidden(&stand, "allowed.test", "public.test").await.unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let record = stand.records(1).await.pop().unwrap();
    assert!(
        record.reason.contains("`public.test`") && record.reason.contains("turn ECH off"),
        "{}",
        record.reason
    );
}

#[tokio::test]
async fn nothing_that_may_hide_a_name_passes_unread() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let unread = "version: 1\nname: unread\nrules:\n  - {id: a, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: tls, \
                  private: true}, effect: allow}\n";
    stand.put(unread);
    hidden(&stand, "allowed.test", "allowed.test").await.unwrap_err();
    assert_eq!(origin.connections(), 0);
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!((record.kind.as_str(), record.verdict), ("tls", Verdict::Denied));
    assert!(
        record.reason.contains("Encrypted Client Hello"),
        "{}",
        record.reason
    );
}
