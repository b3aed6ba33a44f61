//! Bandwidth and fairness: a rule's pace holds for bodies and streams, and one session's haste costs no other its place.
use crate::origin::{Origin, Roots, full};
use crate::stand::{Stand, ask, authorization, read_all};
use http::Response;
use sallyport_gateway::limits::Limits;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn paced(bandwidth: &str) -> String {
    format!(
        "version: 1\nname: paced\nrules:\n  - id: paced\n    to: {{host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET, POST], \
         private: true}}\n    effect: allow\n    limit: {{bandwidth: {bandwidth}}}\n  - id: stream\n    to: {{host: [opaque.test, \
         127.0.0.0/8], port: PORT, protocol: tcp, private: true}}\n    effect: allow\n    limit: {{bandwidth: {bandwidth}}}\n"
    )
}

#[tokio::test]
async fn an_answer_comes_no_faster_than_its_rule_lets_it_and_arrives_whole() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |_| async {
        let pieces = std::iter::repeat_n(vec![b'x'; 10_000], 10);
        let whole: Vec<u8> = pieces.flatten().collect();
        Response::new(full(whole))
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&paced("200KB/s"));
    let began = Instant::now();
    let answer = stand.get("allowed.test", "/").await;
    let again = stand.get("allowed.test", "/").await;
    // 200 KB at 200 KB/s; the last piece waits for nobody, and 100 ms are a head start.
    assert!(
        began.elapsed() > Duration::from_millis(350),
        "{:?}",
        began.elapsed()
    );
    for answer in [answer, again] {
        assert!(answer.ends_with(&"x".repeat(100_000)), "{} bytes", answer.len());
    }
}

#[tokio::test]
async fn a_stream_is_slowed_both_ways_together() {
    let roots = Roots::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
    });
    let stand = Stand::new(&roots, port).await;
    stand.put(&paced("200KB/s"));
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    let began = Instant::now();
    let text = vec![b'x'; 50_000];
    stream.write_all(&text).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await.len(), text.len());
    assert!(
        began.elapsed() > Duration::from_millis(300),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_session_with_as_many_connections_as_it_may_leaves_the_others_theirs() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    stand.put_for("run-2", crate::stand::POLICY);
    let token = stand.sessions.view("run-2", &stand.ca_pem).unwrap().proxy_token;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(stand.h1("allowed.test").await);
    }
    let mut fifth = stand.tunnel(&stand.at("allowed.test")).await;
    assert_eq!(
        fifth.read(&mut [0; 1]).await.unwrap(),
        0,
        "the fifth is closed at once"
    );
    let at = stand.at("allowed.test");
    let mut other = stand.dial().await;
    let head = format!(
        "CONNECT {at} HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: {}\r\n\r\n",
        authorization("run-2", &token)
    );
    let (answer, _) = ask(&mut other, &head).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut other = stand
        .tls_over(other, Some("allowed.test"), &["http/1.1"])
        .await
        .unwrap();
    let (answer, _) = ask(&mut other, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held.pop());
    let freed = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let tunnel = stand.tunnel(&at).await;
            if stand
                .tls_over(tunnel, Some("allowed.test"), &["http/1.1"])
                .await
                .is_ok()
            {
                return;
            }
        }
    });
    freed.await.expect("a place that is given up can be taken again");
}
