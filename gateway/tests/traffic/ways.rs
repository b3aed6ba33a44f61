//! Further ways to the explicit proxy: TLS to the proxy, a load balancer's header, unix sockets, listeners of one session.
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_all, read_head};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_gateway::control::handover::ListenerHost;
use sallyport_gateway::control::types::{ListenerKind, Verdict};
use sallyport_gateway::downstream::socket::Socket;
use sallyport_gateway::limits::Limits;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

async fn origin() -> (Roots, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    (roots, origin)
}

/// An origin that speaks no TLS and echoes the request line.
pub(crate) async fn plain_origin() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let text = format!("{} {}", request.method(), request.uri());
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(text))))
                });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (port, task)
}

/// TLS to the proxy itself.
async fn tls_to_proxy(
    stand: &Stand,
    name: &str,
    alpn: &[&str],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut stand.ca_pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|offer| offer.as_bytes().to_vec()).collect();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stand.dial().await)
        .await
        .unwrap()
}

fn absolute(stand: &Stand, host: &str, path: &str) -> http::Request<Full<Bytes>> {
    http::Request::builder()
        .uri(format!("http://{}{path}", stand.at(host)))
        .header("proxy-authorization", stand.authorization())
        .body(Full::default())
        .unwrap()
}

async fn h2(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sender
}

async fn answered(response: http::Response<hyper::body::Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_proxy_is_spoken_inside_tls_in_both_versions_of_http() {
    let (port, _origin) = plain_origin().await;
    let stand = Stand::new(&Roots::new(), port).await;
    for name in ["127.0.0.1", "proxy.test"] {
        let mut one = tls_to_proxy(&stand, name, &["http/1.1"]).await;
        let at = stand.at("api.test");
        let request = format!(
            "GET http://{at}/public/a HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: {}\r\n\r\n",
            stand.authorization()
        );
        let (head, body) = ask(&mut one, &request).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(body, "GET /public/a");
    }
    let two = tls_to_proxy(&stand, "127.0.0.1", &["h2"]).await;
    assert_eq!(two.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = h2(two).await;
    let fine = sender
        .send_request(absolute(&stand, "api.test", "/public/b"))
        .await
        .unwrap();
    assert_eq!(answered(fine).await, (200, "GET /public/b".to_owned()));
    let refused = sender
        .send_request(absolute(&stand, "denied.test", "/"))
        .await
        .unwrap();
    assert_eq!(answered(refused).await.0, 403);
    let mut unknown = absolute(&stand, "api.test", "/public/b");
    unknown.headers_mut().remove("proxy-authorization");
    let unknown = sender.send_request(unknown).await.unwrap();
    assert_eq!(answered(unknown).await.0, 407);
}

#[tokio::test]
async fn absolute_form_works_over_http2_without_tls_too() {
    let (port, _origin) = plain_origin().await;
    let stand = Stand::new(&Roots::new(), port).await;
    let mut sender = h2(stand.dial().await).await;
    for (host, path, status) in [
        ("api.test", "/public/a", 200),
        ("api.test", "/private", 403),
        ("denied.test", "/", 403),
    ] {
        let response = sender.send_request(absolute(&stand, host, path)).await.unwrap();
        assert_eq!(answered(response).await.0, status, "{host}{path}");
    }
    let mut https = absolute(&stand, "api.test", "/public/a");
    *https.uri_mut() = format!("https://{}/public/a", stand.at("api.test"))
        .parse()
        .unwrap();
    let response = sender.send_request(https).await.unwrap();
    assert_eq!(answered(response).await.0, 400);
}

#[tokio::test]
async fn tls_to_the_proxy_for_an_impossible_name_is_refused_and_recorded() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let mut stream = stand.dial().await;
    stream.write_all(&hello_for("a..test")).await.unwrap();
    read_all(&mut stream).await;
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        (record.kind.as_str(), record.verdict),
        ("connect", Verdict::Malformed)
    );
    assert!(record.reason.contains("TLS to the proxy"), "{}", record.reason);
}

/// A ClientHello with this server name and nothing else.
pub(crate) fn hello_for(name: &str) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let list = sized(&[&[0][..], &sized(name.as_bytes())].concat());
    let extensions = sized(&[&[0, 0][..], &sized(&list)].concat());
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &extensions,
    ]
    .concat();
    let handshake = [&[1, 0][..], &sized(&body)].concat();
    [&[0x16, 3, 1][..], &sized(&handshake)].concat()
}

async fn curl(stand: &Stand, folder: &Path, arguments: &[&str], url: &str) -> Output {
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    tokio::process::Command::new("curl")
        .args(["-sS", "--noproxy", "", "--cacert"])
        .arg(&ca)
        .arg("--proxy-cacert")
        .arg(&ca)
        .args(arguments)
        .arg(url)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn real_curl_speaks_tls_to_the_proxy() {
    let (roots, origin) = origin().await;
    let stand = Stand::new(&roots, origin.port).await;
    let folder = tempfile::tempdir().unwrap();
    let proxy = format!("https://run-1:{}@{}", stand.token, stand.proxy);
    let url = format!("https://{}/by-curl", stand.at("allowed.test"));
    let fine = curl(&stand, folder.path(), &["--proxy", &proxy], &url).await;
    let text = String::from_utf8(fine.stdout).unwrap();
    assert!(
        fine.status.success() && text.contains("/by-curl"),
        "{text} {:?}",
        String::from_utf8(fine.stderr)
    );
    let refused = format!("http://{}/", stand.at("denied.test"));
    let refused = curl(&stand, folder.path(), &["--proxy", &proxy], &refused).await;
    let document: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(document["status"], 403);
}

#[tokio::test]
async fn real_curl_asks_for_names_over_https_and_comes_by_the_addresses_that_stand_for_them() {
    let (roots, origin) = origin().await;
    let stand = Stand::new(&roots, origin.port).await;
    let folder = tempfile::tempdir().unwrap();
    let names = format!("https://run-1:{}@{}/dns-query", stand.token, stand.proxy);
    // SOCKS 5 with addresses: curl looks the name up itself, at the gateway.
    let proxy = format!("socks5://run-1:{}@{}", stand.token, stand.proxy);
    let arguments = ["--doh-url", &names, "--proxy", &proxy];
    for (name, status) in [("allowed.test", 200), ("denied.test", 403)] {
        let url = format!("https://{}/by-address", stand.at(name));
        let with_status = [&arguments[..], &["-w", "\n%{http_code} %{remote_ip}"]].concat();
        let output = curl(&stand, folder.path(), &with_status, &url).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(&format!("\n{status} ")),
            "{name}: {text} {complaint}"
        );
    }
    let records = stand.records(2).await;
    let addresses = records.iter().filter(|record| record.host.starts_with("198."));
    assert_eq!(addresses.count(), 0, "names are recorded: {records:#?}");
}

/// A stand whose clients on 127/8 are a load balancer.
async fn balanced(roots: &Roots, port: u16) -> Stand {
    let limits = Limits {
        first_bytes: Duration::from_millis(500),
        ..Limits::default()
    };
    Stand::with_ways(roots, port, limits, |mut ways| {
        ways.balancers = vec!["127.0.0.0/8".parse().unwrap()];
        ways
    })
    .await
}

/// 192.0.2.7:40000 dials 203.0.113.9:3128 at the balancer.
const HEADER: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xcb\0\x71\x09\x9c\x40\x0c\x38";

#[tokio::test]
async fn a_client_behind_a_load_balancer_is_recorded_as_itself() {
    let (port, _origin) = plain_origin().await;
    let stand = balanced(&Roots::new(), port).await;
    let at = stand.at("api.test");
    let request = format!(
        "GET http://{at}/public/a HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nProxy-Authorization: {}\r\n\r\n",
        stand.authorization()
    );
    for piece in [1, 1000] {
        let mut stream = stand.dial().await;
        for part in [HEADER, request.as_bytes()].concat().chunks(piece) {
            stream.write_all(part).await.unwrap();
        }
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    for record in stand.records(2).await {
        assert_eq!(record.client, Some("192.0.2.7:40000".parse().unwrap()));
    }
    // The balancer's own look at the gateway.
    let mut stream = stand.dial().await;
    stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    let mut stream = stand.dial().await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    assert_eq!(stand.records(2).await.len(), 2, "neither is an event");
}

#[tokio::test]
async fn from_a_load_balancer_nothing_is_served_without_a_good_header() {
    let stand = balanced(&Roots::new(), 1).await;
    let beginnings = [
        (
            b"GET http://a.test/ HTTP/1.1\r\n\r\n".as_slice(),
            "no PROXY header",
        ),
        (b"PROXY TCP4 192.0.2.7 203.0.113.9 1 2\r\n", "version 1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0", "unknown version"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\0", "something else than TCP"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04abcd", "middle of a field"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "longer than"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "came within"),
    ];
    let count = beginnings.len();
    for (bytes, why) in beginnings {
        let mut stream = stand.dial().await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(ending(&mut stream).await, 0, "{why}");
        let record = stand.records(1).await.pop().unwrap();
        assert_eq!(record.verdict, Verdict::Malformed);
        assert!(record.reason.contains(why), "{why}: {}", record.reason);
    }
    assert_eq!(stand.records(count).await.len(), count);
}

#[tokio::test]
async fn from_elsewhere_a_header_is_malformed() {
    let stand = Stand::new(&Roots::new(), 1).await;
    for header in [HEADER, b"PROXY TCP4 192.0.2.7 203.0.113.9 1 2\r\n"] {
        let mut stream = stand.dial().await;
        stream.write_all(header).await.unwrap();
        assert_eq!(ending(&mut stream).await, 0);
    }
    let records = stand.records(2).await;
    assert!(
        records
            .iter()
            .all(|record| record.reason.contains("--proxy-protocol-from")),
        "{records:#?}"
    );
    assert!(
        records
            .iter()
            .all(|record| record.client.is_some_and(|client| client.ip().is_loopback()))
    );
}

/// Bytes until the other side ends the connection, in order or not.
async fn ending(stream: &mut TcpStream) -> usize {
    use tokio::io::AsyncReadExt;
    let mut all = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
    // What the gateway had not read resets the connection; that ends it too.
    drop(reading.expect("the connection is ended"));
    all.len()
}

#[tokio::test]
async fn the_proxy_listens_on_a_unix_socket_too() {
    let (roots, origin) = origin().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let stand = Stand::with_ways(&roots, origin.port, Limits::default(), |mut ways| {
        ways.socket = Some(Socket::Unix(listener));
        ways
    })
    .await;
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let (head, _) = ask(
        &mut stream,
        "CONNECT allowed.test:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 407 "), "{head}");
    let request = format!(
        "CONNECT denied.test:443 HTTP/1.1\r\nHost: a\r\nProxy-Authorization: {}\r\n\r\n",
        stand.authorization()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let proxy = format!("socks5h://run-1:{}@localhost{}", stand.token, path.display());
    let url = format!("https://{}/by-curl", stand.at("allowed.test"));
    let fine = curl(&stand, folder.path(), &["--proxy", &proxy], &url).await;
    assert!(fine.status.success(), "{fine:?}");
}

#[tokio::test]
async fn a_listener_of_one_session_asks_nobody_who_it_is() {
    let (roots, origin) = origin().await;
    let stand = Stand::new(&roots, origin.port).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.sock");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let session = stand.sessions.by_id("run-1").unwrap();
    let listeners = vec![
        (ListenerKind::Proxy, unix.into()),
        (ListenerKind::Proxy, tcp.into()),
    ];
    stand.gateway.serve(session, listeners).unwrap();
    let url = format!("https://{}/by-curl", stand.at("allowed.test"));
    for proxy in [
        format!("http://{address}"),
        format!("http://run-2:nonsense@{address}"),
        format!("https://{address}"),
        format!("socks5h://{address}"),
        format!("socks5h://run-2:nonsense@{address}"),
        format!("socks5h://localhost{}", path.display()),
    ] {
        let fine = curl(&stand, folder.path(), &["--proxy", &proxy], &url).await;
        assert!(fine.status.success(), "{proxy}: {fine:?}");
    }
    let records = stand.records(6).await;
    assert!(
        records.iter().all(|record| record.session == "run-1"),
        "{records:#?}"
    );
    let mut kept = UnixStream::connect(&path).await.unwrap();
    kept.write_all(b"CONNECT").await.unwrap();
    stand.sessions.delete("run-1").unwrap();
    read_all(&mut kept).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(&path).await.is_ok() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the listener still accepts"
        );
    }
}

#[tokio::test]
async fn a_sessions_own_listener_has_as_many_connections_as_the_session_may() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&Roots::new(), 1, limits).await;
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let session = stand.sessions.by_id("run-1").unwrap();
    stand
        .gateway
        .serve(session, vec![(ListenerKind::Proxy, tcp.into())])
        .unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    let (head, _) = ask(&mut first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let mut held = TcpStream::connect(address).await.unwrap();
    held.write_all(b"G").await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    // The first one's place may be given back a moment after its answer.
    while !ended_at_once(address).await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "more connections than allowed are open"
        );
        held = TcpStream::connect(address).await.unwrap();
        held.write_all(b"G").await.unwrap();
    }
    drop(held);
}

/// Whether a fresh connection is closed before anything was said on it.
async fn ended_at_once(address: std::net::SocketAddr) -> bool {
    use tokio::io::AsyncReadExt;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut byte = [0; 1];
    tokio::time::timeout(Duration::from_millis(500), stream.read(&mut byte))
        .await
        .is_ok()
}
