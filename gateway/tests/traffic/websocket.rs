//! WebSocket through the gateway (cases P12, S02, S03, Q12): decided as the GET that it begins with, looked into, ended in words.
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, SECRET, Stand, ask};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;
use sallyport_policy::Grant;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{
    Callback, ErrorResponse, Request as Asked, Response,
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tokio_tungstenite::tungstenite::{self, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async, client_async};

const SECOND: Duration = Duration::from_secs(20);

/// An origin that echoes every message, cut into fragments of three bytes, after the `authorization` that it got; and notes what
/// came.
pub(crate) async fn echo(roots: &Roots, alpn: &[&str]) -> (Origin, Arc<Mutex<Vec<String>>>) {
    let came: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = came.clone();
    let origin = Origin::raw(roots, alpn, move |stream| {
        let noting = noting.clone();
        async move {
            let head = Noting(noting.clone());
            let Ok(mut socket) = accept_hdr_async(stream, head).await else {
                return;
            };
            let told = noting.lock().unwrap().last().cloned().unwrap();
            repeat(&mut socket, &told, &noting).await;
        }
    })
    .await;
    (origin, came)
}

/// The origin's side of a conversation.
pub(crate) async fn repeat<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    told: &str,
    noting: &Mutex<Vec<String>>,
) {
    socket.send(Message::text(told)).await.unwrap();
    let bytes = told.as_bytes().to_vec();
    socket.send(Message::binary(bytes)).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        noting.lock().unwrap().push(format!("{message:?}"));
        if let Message::Text(text) = message {
            in_fragments(socket, &format!("{told} {text}")).await;
        }
    }
}

/// Writes a handshake's target and `authorization` down.
pub(crate) struct Noting(pub(crate) Arc<Mutex<Vec<String>>>);

impl Callback for Noting {
    fn on_request(self, request: &Asked, response: Response) -> Result<Response, ErrorResponse> {
        let field = |name: &str| {
            request
                .headers()
                .get(name)
                .map_or("none", |value| value.to_str().unwrap())
                .to_owned()
        };
        let told = format!("{} {}", request.uri(), field("authorization"));
        self.0.lock().unwrap().push(told);
        Ok(response)
    }
}

async fn in_fragments<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, text: &str) {
    let mut opcode = OpCode::Data(Data::Text);
    for piece in text.as_bytes().chunks(3) {
        let frame = Frame::message(Bytes::copy_from_slice(piece), opcode, false);
        socket.send(Message::Frame(frame)).await.unwrap();
        socket
            .send(Message::Ping(Bytes::from_static(b"still here")))
            .await
            .unwrap();
        opcode = OpCode::Data(Data::Continue);
    }
    let end = Frame::message(Bytes::new(), opcode, true);
    socket.send(Message::Frame(end)).await.unwrap();
}

pub(crate) fn handshake(stand: &Stand, host: &str) -> Request<()> {
    let mut request = format!("wss://{}/socket?x=1", stand.at(host))
        .into_client_request()
        .unwrap();
    let bearer = format!("Bearer {}", stand.placeholder);
    request
        .headers_mut()
        .insert("authorization", HeaderValue::from_str(&bearer).unwrap());
    request
}

type Socket = WebSocketStream<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>;

pub(crate) async fn connected(stand: &Stand) -> Socket {
    let stream = stand.h1("allowed.test").await;
    let (socket, response) = client_async(handshake(stand, "allowed.test"), stream)
        .await
        .unwrap();
    assert_eq!(response.status(), 101);
    let via = response.headers()["via"].to_str().unwrap();
    assert!(via.contains(" sallyport-"), "{via}");
    socket
}

/// The ordinary answer that a handshake gets.
pub(crate) async fn answered(
    stand: &Stand,
    host: &str,
    request: Request<()>,
) -> http::Response<Option<Vec<u8>>> {
    let Err(tungstenite::Error::Http(response)) = client_async(request, stand.h1(host).await).await else {
        panic!("not answered as HTTP");
    };
    *response
}

async fn next<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    loop {
        let message = tokio::time::timeout(SECOND, socket.next()).await.unwrap();
        match message.unwrap().unwrap() {
            Message::Ping(_) | Message::Pong(_) => {}
            message => return message,
        }
    }
}

/// The close frame that comes next, whatever comes before it.
async fn closing<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> CloseFrame {
    loop {
        if let Message::Close(frame) = next(socket).await {
            return frame.unwrap();
        }
    }
}

/// What a client sees of an echoing origin, over whatever connection.
pub(crate) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stand: &Stand,
    socket: &mut WebSocketStream<S>,
) {
    let told = format!("/socket?x=1 Bearer {}", stand.placeholder);
    assert_eq!(next(socket).await, Message::text(told.clone()));
    assert_eq!(next(socket).await, Message::binary(told.clone().into_bytes()));
    let said = format!("said {}", stand.placeholder);
    socket.send(Message::text(said.clone())).await.unwrap();
    assert_eq!(next(socket).await, Message::text(format!("{told} {said}")));
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::from_static("done"),
    };
    socket.close(Some(close.clone())).await.unwrap();
    assert_eq!(closing(socket).await, close);
    assert!(
        tokio::time::timeout(SECOND, socket.next())
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn check_records(stand: &Stand, status: u16) {
    let records = stand.records(2).await;
    let [open, end] = records.as_slice() else {
        panic!("{records:#?}");
    };
    assert_eq!((open.kind.as_str(), open.ending.as_str()), ("websocket", "open"));
    assert_eq!(
        (end.kind.as_str(), end.ending.as_str()),
        ("websocket", "complete")
    );
    assert_eq!(open.id, end.id);
    for record in [open, end] {
        assert_eq!(
            (record.method.as_deref(), record.status),
            (Some("GET"), Some(status))
        );
        assert_eq!(
            (record.verdict, record.path.as_deref()),
            (Verdict::Allowed, Some("/socket"))
        );
        assert_eq!(record.credentials_used, ["token"]);
    }
    assert_eq!(end.credentials_redacted, ["token"]);
    assert!(
        end.reason
            .contains("placeholder of credential `token` in a message"),
        "{}",
        end.reason
    );
    assert!(end.bytes_in > 100 && end.bytes_out > 40, "{end:#?}");
    assert!(!format!("{records:?}").contains(SECRET));
}

#[tokio::test]
async fn a_websocket_passes_with_its_credential_put_in_and_taken_out_again() {
    let roots = Roots::new();
    // An origin that would rather speak h2 is asked for http/1.1.
    let (origin, came) = echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    converse(&stand, &mut socket).await;
    let came = came.lock().unwrap().clone();
    assert_eq!(
        came[0],
        format!("/socket?x=1 Bearer {SECRET}"),
        "the origin got the value"
    );
    assert!(
        came[1].contains(&stand.placeholder),
        "a placeholder in a message stays one: {came:?}"
    );
    check_records(&stand, 101).await;
}

#[tokio::test]
async fn a_refused_handshake_is_a_problem_document() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut request = handshake(&stand, "docs.test");
    request.headers_mut().remove("authorization");
    let response = answered(&stand, "docs.test", request).await;
    assert_eq!(response.status(), 403);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let head = format!("{:?}", response.headers());
    assert!(head.contains("x-sallyport-decision"), "{head}");
    assert_eq!(origin.connections(), 0);
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        (record.kind.as_str(), record.rule.as_str()),
        ("websocket", "docs")
    );
    assert_eq!(record.verdict, Verdict::Denied);
}

#[tokio::test]
async fn half_a_handshake_is_malformed_and_a_foreign_name_misdirected() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let (here, there) = (stand.at("allowed.test"), stand.at("other.test"));
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "Sec-WebSocket-Version: 13\r\n";
    for (what, method, host, fields, status) in [
        ("no key", "GET", &here, version.to_owned(), "400"),
        (
            "a short key",
            "GET",
            &here,
            format!("{version}Sec-WebSocket-Key: c2hvcnQ=\r\n"),
            "400",
        ),
        ("two keys", "GET", &here, format!("{version}{key}{key}"), "400"),
        (
            "another version",
            "GET",
            &here,
            format!("{key}Sec-WebSocket-Version: 8\r\n"),
            "400",
        ),
        (
            "another method",
            "POST",
            &here,
            format!("{version}{key}Content-Length: 0\r\n"),
            "400",
        ),
        ("another host", "GET", &there, format!("{version}{key}"), "421"),
    ] {
        let mut stream = stand.h1("allowed.test").await;
        let head = format!(
            "{method} /socket HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n"
        );
        let (head, body) = ask(&mut stream, &head).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {head}{body}"
        );
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_value_that_goes_out_ends_it_with_the_decision() {
    let roots = Roots::new();
    let (origin, came) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    socket
        .send(Message::text(format!("leaking {SECRET} now")))
        .await
        .unwrap();
    let close = closing(&mut socket).await;
    assert_eq!(close.code, CloseCode::Policy);
    let record = stand.records(2).await.pop().unwrap();
    assert_eq!(
        (record.verdict, record.ending.as_str()),
        (Verdict::Denied, "refused")
    );
    assert!(record.reason.contains("credential `token`"), "{}", record.reason);
    assert!(close.reason.contains(&record.id), "{close:?}");
    assert!(
        !format!("{:?}", &came.lock().unwrap()[1..]).contains("Zq8Lw2Xv7Rt4"),
        "the value left"
    );
}

#[tokio::test]
async fn an_origin_that_answers_otherwise_is_heard_over_http1_and_no_websocket_over_http2() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let response = answered(&stand, "allowed.test", handshake(&stand, "allowed.test")).await;
    assert_eq!(response.status(), 200);
    let mut sender = stand.h2("allowed.test").await;
    let plain = Request::get(format!("https://{}/", stand.at("allowed.test"))).body(Full::<Bytes>::default());
    sender.send_request(plain.unwrap()).await.unwrap();
    let mut request = Request::builder()
        .method("CONNECT")
        .uri(format!("https://{}/", stand.at("allowed.test")))
        .header("sec-websocket-version", "13")
        .body(Full::<Bytes>::default())
        .unwrap();
    request
        .extensions_mut()
        .insert(hyper::ext::Protocol::from_static("websocket"));
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 502);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(
        String::from_utf8_lossy(&body).contains("did not begin to speak WebSocket"),
        "{body:?}"
    );
}

#[tokio::test]
async fn it_ends_with_its_session_and_with_the_gateway() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    stand.sessions.delete("run-1").unwrap();
    let close = closing(&mut socket).await;
    assert_eq!(close.code, CloseCode::Away);
    assert!(close.reason.contains("the session ended"), "{close:?}");
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    let (close, ()) = tokio::join!(closing(&mut socket), stand.gateway.drain());
    assert_eq!(close.code, CloseCode::Away);
    assert!(close.reason.contains("the gateway stopped"), "{close:?}");
    assert_eq!(
        stand.records(2).await.pop().unwrap().ending,
        "the gateway stopped"
    );
}

#[tokio::test]
async fn it_ends_with_the_grant_that_it_rests_on() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(
        &POLICY
            .replace(
                "grantable: {by: rule, uses: 5, expires: 1h}",
                "grantable: {by: person, expires: 1h}",
            )
            .replace(
                "host: docs.test, port: PORT,",
                "host: [docs.test, 127.0.0.0/8], port: PORT, private: true,",
            ),
    );
    let grant = Grant {
        credential: None,
        id: String::new(),
        rule: "docs".to_owned(),
        host: "docs.test".to_owned(),
        port: stand.port,
        methods: vec!["GET".to_owned()],
        path: None,
        uses: None,
        expires_at: jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3),
        by: "ada".to_owned(),
    };
    stand.sessions.grant("run-1", grant).await.unwrap();
    let mut request = handshake(&stand, "docs.test");
    request.headers_mut().remove("authorization");
    let (mut socket, _) = client_async(request, stand.h1("docs.test").await).await.unwrap();
    let close = closing(&mut socket).await;
    assert_eq!(close.code, CloseCode::Policy);
    assert!(close.reason.contains("the grant ended"), "{close:?}");
}

#[tokio::test]
async fn bounds_of_its_rule_and_of_messages_end_it() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        websocket_message: 100_000,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let mut socket = connected(&stand).await;
    socket.send(Message::text("x".repeat(100_001))).await.unwrap();
    assert_eq!(closing(&mut socket).await.code, CloseCode::Size);
    let bounded = "    effect: allow\n    limit: {bytes_out: 1000}\n";
    stand.put(&POLICY.replacen("    effect: allow\n", bounded, 1));
    let mut socket = connected(&stand).await;
    socket.send(Message::text("x".repeat(900))).await.unwrap();
    socket.send(Message::text("x".repeat(900))).await.unwrap();
    let close = closing(&mut socket).await;
    assert_eq!(close.code, CloseCode::Policy);
    assert!(
        close.reason.contains("rule `allowed` lets 1000 bytes"),
        "{close:?}"
    );
}

#[tokio::test]
async fn one_on_which_nothing_moves_ends() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        tunnel_idle: Duration::from_millis(300),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let close = closing(&mut connected(&stand).await).await;
    assert_eq!(close.code, CloseCode::Away);
    assert!(close.reason.ends_with("idle"), "{close:?}");
}

#[tokio::test]
async fn an_unmasked_frame_of_the_client_ends_it_with_1002() {
    let roots = Roots::new();
    let (origin, _) = echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut socket = connected(&stand).await;
    for _ in 0..2 {
        next(&mut socket).await;
    }
    let stream = socket.into_inner();
    // A server's frames have no mask.
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    socket.send(Message::text("bare")).await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(socket.into_inner(), Role::Client, None).await;
    assert_eq!(closing(&mut socket).await.code, CloseCode::Protocol);
    let record = stand.records(2).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Malformed);
}
