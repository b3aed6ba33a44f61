//! The explicit proxy: who may use it, and in which forms (cases Q02, Q04, Q07).
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_all};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_gateway::control::types::Verdict;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// A plain origin that answers every request with its head, and a stand that reaches it.
async fn plain() -> (Stand, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let text = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(text))))
                });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (Stand::new(&Roots::new(), port).await, task)
}

#[tokio::test]
async fn without_known_credentials_everything_is_answered_alike() {
    let (stand, _origin) = plain().await;
    let mut answers = Vec::new();
    for header in [
        "",
        "Proxy-Authorization: Basic cnVuLTE6d3Jvbmc=\r\n",
        "Proxy-Authorization: Bearer x\r\n",
        "Proxy-Authorization: Basic ====\r\n",
    ] {
        let mut stream = stand.dial().await;
        let (head, body) = ask(
            &mut stream,
            &format!("CONNECT allowed.test:443 HTTP/1.1\r\nHost: a\r\n{header}\r\n"),
        )
        .await;
        assert!(head.starts_with("HTTP/1.1 407 "), "{head}");
        assert!(
            head.contains("proxy-authenticate: Basic realm=\"sallyport\""),
            "{head}"
        );
        let document: serde_json::Value = serde_json::from_str(&body).unwrap();
        answers.push((document["title"].clone(), document["detail"].clone()));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let records = stand.records(4).await;
    assert!(
        records
            .iter()
            .all(|record| record.verdict == Verdict::Denied && record.session.is_empty())
    );
}

#[tokio::test]
async fn absolute_form_obeys_the_same_rules_as_a_tunnel() {
    let (stand, _origin) = plain().await;
    let api = stand.at("api.test");
    let fine = stand.absolute(&format!("GET http://{api}/public/a"), &api).await;
    assert!(
        fine.starts_with("HTTP/1.1 200 ") && fine.contains("GET /public/a"),
        "{fine}"
    );
    assert!(!fine.contains("proxy-authorization"), "{fine}");
    for (line, status) in [
        (format!("POST http://{api}/public/a"), 403),
        (format!("GET http://{api}/private"), 403),
        (format!("GET http://{}/", stand.at("denied.test")), 403),
        (format!("GET https://{api}/public/a"), 400),
        (format!("GET ftp://{api}/public/a"), 400),
        (format!("GET http://user:pw@{api}/public/a"), 400),
        ("GET /public/a".to_owned(), 400),
        ("OPTIONS *".to_owned(), 400),
    ] {
        let host = line
            .split("//")
            .nth(1)
            .map_or(api.clone(), |rest| rest.split('/').next().unwrap().to_owned());
        let answer = stand.absolute(&line, host.rsplit('@').next().unwrap()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line}: {answer}"
        );
    }
    let differing = stand
        .absolute(&format!("GET http://{api}/public/a"), "denied.test")
        .await;
    assert!(differing.starts_with("HTTP/1.1 400 "), "{differing}");
    assert_eq!(stand.records(10).await.len(), 10);
}

#[tokio::test]
async fn malformed_connect_targets_are_refused_with_a_reason() {
    let (stand, _origin) = plain().await;
    for target in [
        "allowed.test",
        "allowed.test:",
        "allowed.test:0",
        "allowed.test:99999",
        "user@allowed.test:443",
        "denied.test..:443",
        "127.1:443",
        "0x7f000001:443",
        "2130706433:443",
        "0177.0.0.1:443",
        "[fe80::1%25eth0]:443",
    ] {
        let mut stream = stand.dial().await;
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {}\r\n\r\n",
            stand.authorization()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
    }
    assert!(
        stand
            .records(1)
            .await
            .iter()
            .all(|record| record.verdict == Verdict::Malformed)
    );
}

#[tokio::test]
async fn connect_works_over_http2_too() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let stream = stand.dial().await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method("CONNECT")
        .uri(stand.at("allowed.test"))
        .header("proxy-authorization", stand.authorization())
        .body(Full::<Bytes>::default())
        .unwrap();
    let mut response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(
            rustls_pemfile::certs(&mut stand.ca_pem.as_bytes())
                .next()
                .unwrap()
                .unwrap(),
        )
        .unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("allowed.test").unwrap();
    let mut tls = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config))
        .connect(name, TokioIo::new(upgraded))
        .await
        .unwrap();
    let (head, body) = ask(
        &mut tls,
        &format!("GET /a HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at("allowed.test")),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.starts_with("GET /a"), "{body}");
}

#[tokio::test]
async fn the_gateways_own_listener_is_never_dialled() {
    let (stand, _origin) = plain().await;
    stand.put(
        "version: 1\nname: t\ndefault: deny\nrules:\n  - id: all\n    to: {host: [allowed.test, 127.0.0.0/8], port: \
         \"1-65535\", private: true}\n    effect: allow\n",
    );
    let own = format!("allowed.test:{}", stand.proxy.port());
    let answer = stand.absolute(&format!("GET http://{own}/"), &own).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("would be a loop"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_private_address_behind_an_allowed_name_is_refused_with_its_range() {
    let (stand, _origin) = plain().await;
    let at = stand.at("rebound.test");
    let answer = stand.absolute(&format!("GET http://{at}/"), &at).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        answer.contains("loopback") && answer.contains("destination_ip_prohibited"),
        "{answer}"
    );
    let records = stand.records(1).await;
    assert_eq!(
        (records[0].verdict, records[0].status),
        (Verdict::Denied, Some(403))
    );
}

#[tokio::test]
async fn the_response_body_is_collected_by_real_curl() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    for version in ["--http1.1", "--http2"] {
        let output = tokio::process::Command::new("curl")
            .args(["-sS", "-i", version, "--cacert"])
            .arg(&ca)
            .args(["-x", &format!("http://run-1:{}@{}", stand.token, stand.proxy)])
            .args(["--noproxy", ""])
            .arg(format!("https://{}/by-curl", stand.at("allowed.test")))
            .output()
            .await
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(text.contains(" 200") && text.contains("/by-curl"), "{text}");
        let refused = tokio::process::Command::new("curl")
            .args(["-sS", version, "--cacert"])
            .arg(&ca)
            .args(["-x", &format!("http://run-1:{}@{}", stand.token, stand.proxy)])
            .args(["--noproxy", ""])
            .arg(format!("https://{}/", stand.at("denied.test")))
            .output()
            .await
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(document["status"], 403);
        assert_eq!(document["rule"], "default");
    }
}
