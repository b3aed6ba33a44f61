//! What one version of HTTP must say in the words of the other: torn ends, trailers, answers that come early or never (cases P05
//! to P07).
use crate::fidelity::origin_that_answers_early;
use crate::origin::{Origin, Reply, Roots};
use crate::stand::{Stand, ask, read_all, read_head};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_gateway::limits::Limits;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

/// An answer of these frames; an error breaks it off.
fn frames(frames: Vec<io::Result<Frame<Bytes>>>) -> Reply {
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn data(text: &'static str) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn get(stand: &Stand) -> Request<http_body_util::Full<Bytes>> {
    Request::get(format!("https://{}/", stand.at("allowed.test")))
        .header("te", "trailers")
        .body(http_body_util::Full::default())
        .unwrap()
}

#[tokio::test]
async fn a_stream_that_its_origin_resets_looks_torn_in_both_versions() {
    let roots = Roots::new();
    let arrived = Arc::new(Notify::new());
    let waiting = arrived.clone();
    let origin = Origin::http(&roots, &["h2"], move |_| {
        let waiting = waiting.clone();
        let breaking = async move {
            waiting.notified().await;
            Err(io::Error::other("the origin broke off"))
        };
        let all = futures_util::stream::iter([data("hello\n"), data("world\n")]);
        let all = all.chain(futures_util::stream::once(breaking));
        std::future::ready(Response::new(StreamBody::new(all).boxed_unsync()))
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    let mut chunks = Vec::new();
    while !chunks.ends_with(b"world\n\r\n") {
        let read = timeout(Duration::from_secs(10), stream.read_buf(&mut chunks)).await;
        assert!(read.unwrap().unwrap() > 0, "{head}{chunks:?}");
    }
    arrived.notify_one();
    assert_eq!(read_all(&mut stream).await, "", "no last chunk, and closed");
    let mut sender = stand.h2("allowed.test").await;
    let response = sender.send_request(get(&stand)).await.unwrap();
    let mut body = response.into_body();
    let mut came = Vec::new();
    while came != b"hello\nworld\n" {
        let frame = timeout(Duration::from_secs(10), body.frame()).await.unwrap();
        came.extend(frame.unwrap().unwrap().into_data().unwrap());
    }
    arrived.notify_one();
    let torn = timeout(Duration::from_secs(10), body.frame()).await;
    torn.unwrap().unwrap().unwrap_err();
    let records = stand.records(2).await;
    for record in &records {
        assert!(record.ending.starts_with("incomplete"), "{record:#?}");
        assert_eq!(record.bytes_in, 12);
    }
}

#[tokio::test]
async fn trailers_cross_from_each_version_to_the_other() {
    let roots = Roots::new();
    let old = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        read_head(&mut stream).await;
        let answer = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n";
        let _written = stream.write_all(answer.as_bytes()).await;
        let mut rest = Vec::new();
        let _ended = stream.read_to_end(&mut rest).await;
    })
    .await;
    let stand = Stand::new(&roots, old.port).await;
    let response = stand
        .h2("allowed.test")
        .await
        .send_request(get(&stand))
        .await
        .unwrap();
    assert!(!response.headers().contains_key("x-sum"));
    let whole = response.into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x-sum"], "42");
    assert_eq!(whole.to_bytes(), "hello");
    let new = Origin::http(&roots, &["h2"], |_| async {
        let sum = [("x-sum".parse().unwrap(), HeaderValue::from_static("42"))];
        let end = Ok(Frame::trailers(HeaderMap::from_iter(sum)));
        Response::builder()
            .header("trailer", "x-sum")
            .body(frames(vec![data("hello"), end]))
            .unwrap()
    })
    .await;
    let stand = Stand::new(&roots, new.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\nTE: trailers\r\nConnection: te, close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(
        answer.ends_with("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_word_to_go_on_and_then_nothing_is_a_504() {
    let roots = Roots::new();
    let origin = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        read_head(&mut stream).await;
        let _written = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        let mut rest = Vec::new();
        let _ended = stream.read_to_end(&mut rest).await;
    })
    .await;
    let limits = Limits {
        upstream_first_byte: Duration::from_millis(500),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let head = format!("PUT /x HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let go_on = read_head(&mut stream).await;
    assert!(go_on.starts_with("HTTP/1.1 100 "), "{go_on}");
    let (head, body) = ask(&mut stream, "hi").await;
    assert!(
        head.starts_with("HTTP/1.1 504 ") && body.contains("did not answer within"),
        "{head}{body}"
    );
}

#[tokio::test]
async fn an_early_answer_over_http2_is_read_whole_and_the_upload_ended_without_an_error() {
    let roots = Roots::new();
    let origin = origin_that_answers_early(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let stream = stand.tls(&at, "allowed.test", &["h2"]).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let endless =
        futures_util::stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::from(vec![0; 16_384]))));
    let request = Request::put(format!("https://{at}/big"))
        .body(StreamBody::new(endless))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "too large"
    );
}
