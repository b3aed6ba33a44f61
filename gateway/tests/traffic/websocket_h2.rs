//! WebSocket over HTTP/2 (RFC 8441), on either side and at the proxy itself (case P12).
use crate::origin::{Origin, Roots};
use crate::stand::{SECRET, Stand, ask};
use crate::websocket::{Noting, answered, check_records, connected, converse, echo, handshake, repeat};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::ext::Protocol;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What a client of HTTP/2 asks with.
fn extended(stand: &Stand, scheme: &str, (path, protocol): (&str, &'static str)) -> Request<Full<Bytes>> {
    Request::builder()
        .method("CONNECT")
        .uri(format!("{scheme}://{}{path}", stand.at("allowed.test")))
        .header("sec-websocket-version", "13")
        .header("authorization", format!("Bearer {}", stand.placeholder))
        .extension(Protocol::from_static(protocol))
        .body(Full::default())
        .unwrap()
}

/// The WebSocket that an answer begins.
async fn begun(mut response: Response<Incoming>) -> Socket {
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("sec-websocket-accept"));
    let via = response.headers()["via"].to_str().unwrap();
    assert!(via.contains(" sallyport-"), "{via}");
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
}

/// An origin of HTTP/2 whose settings allow extended CONNECT: what a WebSocket is told begins with its request's target and
/// `authorization`; other requests get their method.
async fn taking_extended(roots: &Roots, alpn: &[&str]) -> (Origin, Arc<Mutex<Vec<String>>>) {
    let came: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = came.clone();
    let origin = Origin::raw(roots, alpn, move |stream| {
        let noting = noting.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let noting = noting.clone();
            async move {
                if request.extensions().get::<Protocol>().is_none() {
                    return Ok(Response::new(Full::new(Bytes::from(
                        request.method().to_string(),
                    ))));
                }
                let fields = request.headers();
                assert!(!fields.contains_key("sec-websocket-key") && !fields.contains_key("upgrade"));
                assert_eq!(fields["sec-websocket-version"], "13");
                let target = request.uri().path_and_query().unwrap().clone();
                let told = format!("{target} {}", fields["authorization"].to_str().unwrap());
                noting.lock().unwrap().push(told.clone());
                let upgrade = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let stream = TokioIo::new(upgrade.await.unwrap());
                    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
                    repeat(&mut socket, &told, &noting).await;
                });
                Ok::<_, Infallible>(Response::new(Full::default()))
            }
        });
        async move {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.enable_connect_protocol();
            // A client that leaves early is part of some tests.
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    (origin, came)
}

async fn get(stand: &Stand) -> String {
    let at = stand.at("allowed.test");
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
    ask(&mut stand.h1("allowed.test").await, &request).await.1
}

/// After its first answer, so that the settings are known.
async fn ready(stand: &Stand) -> SendRequest<Full<Bytes>> {
    let mut sender = stand.h2("allowed.test").await;
    let plain = Request::get(format!("https://{}/", stand.at("allowed.test"))).body(Full::default());
    assert_eq!(sender.send_request(plain.unwrap()).await.unwrap().status(), 200);
    sender
}

#[tokio::test]
async fn a_kept_connection_whose_upstream_takes_extended_connect_carries_websockets_of_both_kinds_of_clients()
{
    let roots = Roots::new();
    let (origin, came) = taking_extended(&roots, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut sender = ready(&stand).await;
    let request = extended(&stand, "https", ("/socket?x=1", "websocket"));
    let mut socket = begun(sender.send_request(request).await.unwrap()).await;
    let mut other = connected(&stand).await;
    converse(&stand, &mut socket).await;
    converse(&stand, &mut other).await;
    assert_eq!(get(&stand).await, "GET");
    assert_eq!(origin.connections(), 1, "all went by one connection");
    let came = came.lock().unwrap();
    assert_eq!(
        came[..2],
        [
            format!("/socket?x=1 Bearer {SECRET}"),
            format!("/socket?x=1 Bearer {SECRET}")
        ]
    );
    assert!(!format!("{:?}", &came[2..]).contains(SECRET));
}

#[tokio::test]
async fn an_upstream_of_http2_alone_is_asked_by_extended_connect_on_a_connection_of_its_own() {
    let roots = Roots::new();
    let (origin, came) = taking_extended(&roots, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    converse(&stand, &mut socket).await;
    assert_eq!(came.lock().unwrap()[0], format!("/socket?x=1 Bearer {SECRET}"));
    check_records(&stand, 101).await;
}

#[tokio::test]
async fn a_kept_connection_whose_upstream_takes_none_is_left_for_one_of_http1() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    ready(&stand).await;
    let response = answered(&stand, "allowed.test", handshake(&stand, "allowed.test")).await;
    assert_eq!(response.status(), 200);
    let seen = origin.seen();
    assert!(seen[1].contains("upgrade: websocket"), "{seen:?}");
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn extended_connect_over_http2_is_a_websocket_too() {
    let roots = Roots::new();
    let (origin, came) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut sender = stand.h2("allowed.test").await;
    let connect = |path: &str, protocol: &'static str| extended(&stand, "https", (path, protocol));
    // The settings say that it may be asked for once the first answer is there.
    let plain = Request::get(format!("https://{}/", stand.at("denied.test"))).body(Full::default());
    assert_eq!(sender.send_request(plain.unwrap()).await.unwrap().status(), 421);
    let refused = sender.send_request(connect("/", "x-shell")).await.unwrap();
    assert_eq!(refused.status(), 501);
    let request = connect("/socket?x=1", "websocket");
    let mut socket = begun(sender.send_request(request).await.unwrap()).await;
    converse(&stand, &mut socket).await;
    assert_eq!(came.lock().unwrap()[0], format!("/socket?x=1 Bearer {SECRET}"));
    let records = stand.records(4).await;
    assert_eq!(records[1].status, Some(501));
    assert_eq!(
        (records[3].kind.as_str(), records[3].ending.as_str()),
        ("websocket", "complete")
    );
}

#[tokio::test]
async fn an_origin_that_speaks_http2_alone_and_takes_no_extended_connect_is_a_clear_failure() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let response = answered(&stand, "allowed.test", handshake(&stand, "allowed.test")).await;
    assert_eq!(response.status(), 502);
    let status = response.headers()["proxy-status"].to_str().unwrap();
    assert!(status.contains("does not speak HTTP/1.1"), "{status}");
}

#[tokio::test]
async fn the_proxy_itself_takes_it_for_plain_targets() {
    let roots = Roots::new();
    let (origin, came) = plain_echo().await;
    let stand = Stand::new(&roots, origin).await;
    let stream = TokioIo::new(stand.dial().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut asked = |scheme: &str, path: &'static str, known: bool| {
        let mut request = extended(&stand, scheme, (path, "websocket"));
        request.headers_mut().remove("authorization");
        if known {
            let authorization = stand.authorization().parse().unwrap();
            request.headers_mut().insert("proxy-authorization", authorization);
        }
        sender.send_request(request)
    };
    assert_eq!(asked("http", "/socket", false).await.unwrap().status(), 407);
    assert_eq!(asked("https", "/socket", true).await.unwrap().status(), 400);
    let mut socket = begun(asked("http", "/socket?x=1", true).await.unwrap()).await;
    socket.send(Message::text("over the proxy")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("over the proxy")
    );
    assert!(came.lock().unwrap()[0].starts_with("/socket?x=1"));
    socket.close(None).await.unwrap();
    let records = stand
        .records_of(|record| record.kind == "websocket" && record.ending == "complete")
        .await;
    assert_eq!(records[0].path.as_deref(), Some("/socket"));
}

/// An origin without TLS that echoes messages; and the targets that it was asked for.
async fn plain_echo() -> (u16, Arc<Mutex<Vec<String>>>) {
    let came: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = came.clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_hdr_async(stream, Noting(noting)).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    (port, came)
}
