//! Slow clients, hundreds of them in every phase of a connection, beside one that is served as ever (CASES P14).
use crate::origin::{Origin, Roots, full};
use crate::stand::{Stand, ask, read_all};
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use sallyport_gateway::control::types::AuditRecord;
use sallyport_gateway::limits::Limits;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Clients of each kind.
const EACH: usize = 100;
/// Of those who do not read their answer: kernels hold megabytes for each.
const DEAF: usize = 5;

fn limits() -> Limits {
    let short = Duration::from_millis(1500);
    Limits {
        first_bytes: short,
        handshake: short,
        head: short,
        request_body_idle: short,
        unread: short,
        // Whoever keeps an open connection is no slow client.
        idle: Duration::from_secs(60),
        linger: Duration::from_millis(100),
        strangers: 10_000,
        ..Limits::default()
    }
}

/// An origin whose `/flood` does not end.
async fn origin(roots: &Roots) -> Origin {
    Origin::http(roots, &["http/1.1"], |request| async move {
        if request.uri().path() != "/flood" {
            // Whoever sends a body gets an answer when it is whole.
            let whole = request.into_body().collect().await;
            return Response::new(full(if whole.is_ok() { "whole" } else { "torn" }));
        }
        let piece = Bytes::from(vec![b'a'; 64 * 1024]);
        let pieces = futures_util::stream::repeat_with(move || Ok(Frame::data(piece.clone())));
        Response::new(StreamBody::new(pieces).boxed_unsync())
    })
    .await
}

/// A byte now and then, until the other side has enough.
fn drip(mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, text: &'static [u8]) {
    tokio::spawn(async move {
        for byte in text.iter().cycle() {
            tokio::time::sleep(Duration::from_millis(400)).await;
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
}

async fn beginning(stand: &Stand, bytes: &[u8]) -> TcpStream {
    let mut stream = stand.dial().await;
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn asked(stand: &Stand, request: String) -> impl AsyncRead + AsyncWrite + Unpin + Send + use<> {
    let mut stream = stand.h1("allowed.test").await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn hundreds_of_slow_clients_are_ended_each_for_its_own_phase_while_another_is_served() {
    let roots = Roots::new();
    let origin = origin(&roots).await;
    let stand = Stand::with_limits(&roots, origin.port, limits()).await;
    let at = stand.at("allowed.test");
    let mut normal = stand.h1("allowed.test").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let mut held: Vec<Box<dyn Send>> = Vec::new();
    let mut silent = Vec::new();
    for number in 0..EACH {
        // To the proxy: nothing, half a CONNECT.
        silent.push(stand.dial().await);
        held.push(Box::new(beginning(&stand, b"CONNECT allowed.test:443 HT").await));
        // In a tunnel: nothing, half a hello.
        let mut tunnel = stand.tunnel(&at).await;
        tunnel.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        held.push(Box::new(tunnel));
        // In TLS: a head, a body, an answer that nobody reads.
        drip(asked(&stand, "GET / HTTP/1.1\r\n".to_owned()).await, b"x");
        let upload = format!("POST / HTTP/1.1\r\nHost: {at}\r\nContent-Length: 1000000\r\n\r\nbody");
        held.push(Box::new(asked(&stand, upload).await));
        if number < DEAF {
            let flood = format!("GET /flood HTTP/1.1\r\nHost: {at}\r\n\r\n");
            held.push(Box::new(asked(&stand, flood).await));
        }
        let (head, body) = ask(&mut normal, &request).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "whole", "{head}");
    }
    let slow = |record: &AuditRecord| record.ending != "complete" && record.ending != "open";
    let ended = stand.records_until(4 * EACH + DEAF, slow).await;
    for (words, count) in [
        (
            "at the proxy: a request's head did not come to its end within",
            EACH,
        ),
        ("the client sent nothing, or not enough", EACH),
        ("a request's head did not come to its end within", 2 * EACH),
        ("the request's body broke off: the machine idle", EACH),
        ("the client went away", DEAF),
    ] {
        let told = |record: &&AuditRecord| record.reason.contains(words) || record.ending.contains(words);
        assert_eq!(ended.iter().filter(told).count(), count, "{words}");
    }
    for mut silent in silent {
        assert_eq!(
            read_all(&mut silent).await,
            "",
            "who says nothing is left without a word"
        );
    }
    for _ in 0..20 {
        let (head, _) = ask(&mut normal, &request).await;
        assert!(
            head.starts_with("HTTP/1.1 200 "),
            "the kept connection outlives them: {head}"
        );
    }
    drop(held);
}
