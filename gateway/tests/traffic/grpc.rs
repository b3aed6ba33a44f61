//! gRPC through the gateway: calls of all kinds, trailers, and refusals in its own words (cases P06, T05).
use crate::origin::{Origin, Reply, Roots, full};
use crate::python::python_package;
use crate::stand::{SECRET, Stand};
use base64::Engine;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_gateway::control::types::Verdict;
use std::convert::Infallible;
use tokio::process::Command;
use tokio::sync::mpsc;

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// Messages that can be sent one after another; trailers are a frame too.
fn queue() -> (mpsc::UnboundedSender<Frame<Bytes>>, Sent) {
    let (sender, queue) = mpsc::unbounded_channel();
    let frames = stream::unfold(queue, |mut queue: mpsc::UnboundedReceiver<_>| async move {
        queue.recv().await.map(|frame| (Ok(frame), queue))
    });
    (sender, StreamBody::new(frames).boxed_unsync())
}

fn trailers(fields: &[(&'static str, &str)]) -> Frame<Bytes> {
    let fields = fields.iter().map(|(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, HeaderValue::from_str(value).unwrap())
    });
    Frame::trailers(fields.collect())
}

fn answer(frames: Vec<Frame<Bytes>>) -> Response<Reply> {
    let body = StreamBody::new(stream::iter(frames.into_iter().map(Ok))).boxed_unsync();
    let answer = Response::builder().header("content-type", "application/grpc");
    answer.body(body).unwrap()
}

/// Echoes messages as they come; trailers name the call and repeat what came in the request's.
async fn service(request: Request<Incoming>) -> Response<Reply> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/s.S/None" => Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "5")
            .body(full(""))
            .unwrap(),
        "/s.S/Large" => answer(vec![
            Frame::data(Bytes::from(vec![7; 1 << 20])),
            trailers(&[("grpc-status", "0")]),
        ]),
        "/s.S/Leak" => answer(vec![
            Frame::data("x".into()),
            trailers(&[("grpc-status", "0"), ("x-token", SECRET), ("content-length", "9")]),
        ]),
        _ => {
            let (sender, frames) = queue();
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut sum = "none".to_owned();
                while let Some(Ok(frame)) = body.frame().await {
                    match frame.into_data() {
                        Ok(piece) => drop(sender.send(Frame::data(piece))),
                        Err(frame) => {
                            let fields = frame.into_trailers().unwrap();
                            sum = fields["x-sum"].to_str().unwrap().to_owned();
                        }
                    }
                }
                let end = trailers(&[("grpc-status", "0"), ("x-path", &path), ("x-sum", &sum)]);
                drop(sender.send(end));
            });
            let body = frames.map_err(|never| match never {}).boxed_unsync();
            Response::builder()
                .header("content-type", "application/grpc")
                .body(body)
                .unwrap()
        }
    }
}

async fn client(stand: &Stand, window: u32) -> SendRequest<Sent> {
    let at = stand.at("allowed.test");
    let stream = stand.tls(&at, "allowed.test", &["h2"]).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn call(stand: &Stand, path: &str, body: Sent) -> Request<Sent> {
    Request::post(format!("https://{}{path}", stand.at("allowed.test")))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

fn whole(bytes: &'static str) -> Sent {
    StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from(bytes)))])).boxed_unsync()
}

/// The rest of an answer: its bytes and its trailers.
async fn rest(body: &mut Incoming) -> (Vec<u8>, HeaderMap) {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(frame) => {
                assert!(body.frame().await.is_none(), "trailers are last");
                return (bytes, frame.into_trailers().unwrap());
            }
        }
    }
    (bytes, HeaderMap::new())
}

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["h2"], service).await;
    (Stand::new(&roots, origin.port).await, origin)
}

#[tokio::test]
async fn calls_of_all_kinds_stream_both_ways_and_end_in_trailers() {
    let (stand, _origin) = stand().await;
    let mut sender = client(&stand, 65_535).await;
    let mut unary = sender
        .send_request(call(&stand, "/s.S/Unary", whole("one")))
        .await
        .unwrap();
    let (bytes, fields) = rest(unary.body_mut()).await;
    assert_eq!(
        (&bytes[..], fields["x-path"].as_bytes()),
        (&b"one"[..], &b"/s.S/Unary"[..])
    );
    // Each message is answered before the next is sent.
    let (messages, body) = queue();
    messages.send(Frame::data("first\n".into())).unwrap();
    let mut both = sender
        .send_request(call(&stand, "/s.S/Both", body))
        .await
        .unwrap();
    for message in ["first\n", "second\n", "third\n"] {
        if message != "first\n" {
            messages.send(Frame::data(message.into())).unwrap();
        }
        let frame = both.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
    }
    messages.send(trailers(&[("x-sum", "42")])).unwrap();
    drop(messages);
    let (bytes, fields) = rest(both.body_mut()).await;
    assert_eq!((bytes.len(), fields["x-sum"].as_bytes()), (0, &b"42"[..]));
    let mut large = sender
        .send_request(call(&stand, "/s.S/Large", whole("x")))
        .await
        .unwrap();
    let (bytes, fields) = rest(large.body_mut()).await;
    assert_eq!(
        (bytes.len(), fields["grpc-status"].as_bytes()),
        (1 << 20, &b"0"[..])
    );
    let none = sender
        .send_request(call(&stand, "/s.S/None", whole("x")))
        .await
        .unwrap();
    assert_eq!(none.headers()["grpc-status"], "5");
    assert!(hyper::body::Body::is_end_stream(none.body()), "one frame");
}

#[tokio::test]
async fn trailers_of_streams_at_once_keep_to_their_streams() {
    let (stand, _origin) = stand().await;
    let sender = client(&stand, 65_535).await;
    let calls = (0..10).map(|number| {
        let (mut sender, stand) = (sender.clone(), &stand);
        async move {
            let path = format!("/s.S/Call{number}");
            let mut answer = sender.send_request(call(stand, &path, whole("x"))).await.unwrap();
            let (_, fields) = rest(answer.body_mut()).await;
            assert_eq!(fields["x-path"], path);
        }
    });
    stream::iter(calls).buffer_unordered(10).collect::<Vec<_>>().await;
}

#[tokio::test]
async fn a_value_in_a_trailer_is_taken_out_and_framing_in_one_too() {
    let (stand, _origin) = stand().await;
    let mut sender = client(&stand, 65_535).await;
    let mut leak = sender
        .send_request(call(&stand, "/s.S/Leak", whole("x")))
        .await
        .unwrap();
    let (_, fields) = rest(leak.body_mut()).await;
    assert_eq!(fields["x-token"], stand.placeholder);
    assert!(!fields.contains_key("content-length"), "{fields:?}");
}

#[tokio::test]
async fn what_must_not_leave_in_a_trailer_ends_the_call() {
    let (stand, _origin) = stand().await;
    let mut sender = client(&stand, 65_535).await;
    let placeholder = stand.placeholder.clone();
    for (name, value, code) in [
        ("x-sum", placeholder.as_str(), "7"),
        ("host", "other.test", "13"),
        ("x-sum", SECRET, "7"),
    ] {
        let (messages, body) = queue();
        messages.send(trailers(&[(name, value)])).unwrap();
        drop(messages);
        let sent = sender.send_request(call(&stand, "/s.S/Sum", body)).await;
        // The origin may have answered with a head before; then the stream is reset.
        match sent {
            Ok(mut answer) if answer.headers().contains_key("grpc-status") => {
                assert_eq!(answer.headers()["grpc-status"], code, "{name}");
                assert_eq!(rest(answer.body_mut()).await.0, b"");
            }
            Ok(mut answer) => {
                while let Some(Ok(frame)) = answer.body_mut().frame().await {
                    assert!(!frame.is_trailers(), "{name}: ended as if it were whole");
                }
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_is_an_answer_of_trailers_only_with_details() {
    let (stand, origin) = stand().await;
    let mut sender = {
        let at = stand.at("docs.test");
        let stream = stand.tls(&at, "docs.test", &["h2"]).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        sender
    };
    let mut request = call(&stand, "/s.S/Unary", whole("x"));
    *request.uri_mut() = format!("https://{}/s.S/Unary", stand.at("docs.test"))
        .parse()
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let record = stand.records(1).await.pop().unwrap();
    let headers = answer.headers();
    assert_eq!((answer.status().as_u16(), record.verdict), (200, Verdict::Denied));
    assert_eq!(
        (&headers["grpc-status"], &headers["content-type"]),
        (&"7".parse().unwrap(), &"application/grpc+proto".parse().unwrap())
    );
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.contains(&record.id), "{message}");
    let details = base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(headers["grpc-status-details-bin"].as_bytes())
        .unwrap();
    let details = String::from_utf8_lossy(&details);
    for part in [
        "google.rpc.ErrorInfo",
        "HTTP_REQUEST_DENIED",
        "sallyport",
        "decision",
        &record.id,
        &record.rule,
    ] {
        assert!(details.contains(part), "{part}: {details}");
    }
    assert!(
        headers["proxy-status"]
            .to_str()
            .unwrap()
            .contains("error=http_request_denied")
    );
    assert!(hyper::body::Body::is_end_stream(answer.body()), "one frame");
    assert!(origin.seen().is_empty());
}

#[tokio::test]
async fn grpcio_calls_and_is_refused_in_its_own_words() {
    let packages = python_package("grpcio", "1.85.3").await;
    let (stand, _origin) = stand().await;
    let ca = stand.folder.path().join("authority.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let output = Command::new("python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/traffic/grpc_client.py"
        ))
        .arg(&ca)
        .args([stand.at("allowed.test"), stand.at("docs.test")])
        .env("PYTHONPATH", packages)
        .env(
            "https_proxy",
            format!("http://run-1:{}@{}", stand.token, stand.proxy),
        )
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let records = stand.records(1).await;
    let denied = records
        .iter()
        .find(|record| record.verdict == Verdict::Denied)
        .unwrap();
    assert!(
        said.starts_with("PERMISSION_DENIED") && said.contains(&denied.id),
        "{said}"
    );
}
