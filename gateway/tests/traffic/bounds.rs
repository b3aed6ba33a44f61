//! What a rule's `limit` lets pass, and how the rest is told: before it is sent, while it passes, over new policies.
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_all, read_head};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use sallyport_gateway::control::types::{AuditRecord, Verdict};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A policy whose one rule for requests, and one for streams, has this limit.
fn bounded(limit: &str) -> String {
    format!(
        "version: 1\nname: bounded\nrules:\n  - id: bounded\n    to: {{host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET, POST], \
         private: true}}\n    effect: allow\n    limit: {limit}\n  - id: stream\n    to: {{host: [opaque.test, 127.0.0.0/8], port: PORT, \
         protocol: tcp, private: true}}\n    effect: allow\n    limit: {limit}\n"
    )
}

async fn stand(limit: &str) -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&bounded(limit));
    (stand, origin)
}

fn document(answer: &str) -> Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn post(stand: &Stand, length: usize) -> String {
    let at = stand.at("allowed.test");
    format!(
        "POST /echo HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{}",
        "x".repeat(length)
    )
}

fn assert_refused(record: &AuditRecord, status: u16) {
    assert_eq!(
        (record.verdict, record.rule.as_str(), record.status),
        (Verdict::Denied, "bounded", Some(status)),
        "{record:#?}"
    );
    assert_eq!(record.refusal.as_ref().unwrap().reason.text, record.reason);
}

/// The records with this status, once there are `count` of any.
async fn with_status(stand: &Stand, count: usize, status: u16) -> Vec<AuditRecord> {
    let mut records = stand.records(count).await;
    records.retain(|record| record.status == Some(status));
    records
}

#[tokio::test]
async fn what_comes_faster_than_a_rule_lets_it_is_told_when_to_come_again() {
    let (stand, origin) = stand("{rate: 2/h}").await;
    for _ in 0..2 {
        assert!(stand.get("allowed.test", "/").await.starts_with("HTTP/1.1 200 "));
    }
    let answer = stand.get("allowed.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 429 Too Many Requests (sallyport decision "),
        "{answer}"
    );
    assert!(
        answer.contains("content-type: application/problem+json"),
        "{answer}"
    );
    assert!(
        answer.contains("proxy-status: sallyport; error=http_request_denied; details=\""),
        "{answer}"
    );
    let wait: u64 = answer
        .split("retry-after: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next())
        .unwrap()
        .parse()
        .unwrap();
    assert!((1700..=1800).contains(&wait), "{wait}");
    let document = document(&answer);
    assert_eq!(document["rule"], "bounded");
    assert_eq!(
        document["reason"],
        format!("rule `bounded` lets 2 requests an hour pass; try again in {wait} s")
    );
    let record = with_status(&stand, 3, 429).await.pop().unwrap();
    assert_refused(&record, 429);
    assert_eq!(document["decision"], record.id.as_str());
    assert_eq!(origin.seen().len(), 2);
    stand.put(&bounded("{rate: 2000/s}"));
    let answer = stand.get("allowed.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 "),
        "a wider bound holds at once: {answer}"
    );
}

#[tokio::test]
async fn what_is_refused_uses_nothing_up() {
    let (stand, _origin) = stand("{rate: 1/h, request_bytes: 10}").await;
    let answer = stand.raw("allowed.test", &post(&stand, 11)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let answer = stand.get("denied.test", "/").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = stand.get("allowed.test", "/").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// An origin whose answers end when the test says so.
async fn slow(roots: &Roots) -> (Origin, watch::Sender<bool>) {
    let (release, released) = watch::channel(false);
    let origin = Origin::raw(roots, &["http/1.1"], move |mut stream| {
        let mut released = released.clone();
        async move {
            read_head(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
            stream.write_all(head).await.unwrap();
            stream.flush().await.unwrap();
            // Both end the answer: the word, and the test's end.
            let _word = released.wait_for(|released| *released).await.map(drop);
            let _written = stream.write_all(b"0\r\n\r\n").await;
            let _closed = stream.shutdown().await;
        }
    })
    .await;
    (origin, release)
}

#[tokio::test]
async fn a_place_is_taken_until_an_answer_has_ended_or_its_client_has_left() {
    let roots = Roots::new();
    let (origin, release) = slow(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&bounded("{connections: 1}"));
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at("allowed.test"));
    let mut first = stand.h1("allowed.test").await;
    first.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut first).await.starts_with("HTTP/1.1 200 "));
    let answer = stand.get("allowed.test", "/").await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(!answer.contains("retry-after"), "nobody knows when: {answer}");
    assert!(
        document(&answer)["reason"]
            .as_str()
            .unwrap()
            .contains("lets 1 request be under way at once")
    );
    drop(first);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let mut next = loop {
        let mut next = stand.h1("allowed.test").await;
        next.write_all(request.as_bytes()).await.unwrap();
        if read_head(&mut next).await.starts_with("HTTP/1.1 200 ") {
            break next;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the place of a client that left is not free"
        );
    };
    release.send_replace(true);
    let mut rest = [0; 15];
    next.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"5\r\nhello\r\n0\r\n\r\n");
    for _ in 0..5 {
        let answer = stand.get("allowed.test", "/").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "one after the other pass: {answer}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_announced_too_long_is_refused_before_anything_is_sent() {
    let (stand, origin) = stand("{request_bytes: 10}").await;
    let answer = stand.raw("allowed.test", &post(&stand, 10)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let at = stand.at("allowed.test");
    let head = format!(
        "POST /echo HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n"
    );
    let answer = stand.raw("allowed.test", &head).await;
    assert!(
        answer.starts_with("HTTP/1.1 413 "),
        "refused before any 100: {answer}"
    );
    assert_eq!(
        document(&answer)["reason"],
        "rule `bounded` lets a request have 10 bytes of body, and this one has 11; send it in smaller parts"
    );
    let mut sender = stand.h2("allowed.test").await;
    let request = http::Request::post(format!("https://{at}/echo"))
        .body(Full::new(Bytes::from_static(b"eleven byte")))
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 413);
    assert_eq!(origin.seen().len(), 1);
    for record in with_status(&stand, 4, 413).await {
        assert_refused(&record, 413);
        assert_eq!(record.bytes_out, 0);
    }
}

/// An origin that keeps every byte of its requests and never answers.
async fn keeping(roots: &Roots) -> (Origin, Arc<Mutex<Vec<u8>>>) {
    let received: Arc<Mutex<Vec<u8>>> = Arc::default();
    let keeping = received.clone();
    let origin = Origin::raw(roots, &["http/1.1"], move |mut stream| {
        let keeping = keeping.clone();
        async move {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = stream.read(&mut piece).await {
                keeping.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        }
    })
    .await;
    (origin, received)
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_where_it_grows_too_long_and_looks_torn_upstream() {
    let roots = Roots::new();
    let (origin, received) = keeping(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&bounded("{request_bytes: 10}"));
    let at = stand.at("allowed.test");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ntogether\r\n8\r\ntoo much\r\n0\r\n\r\n"
    );
    let answer = stand.raw("allowed.test", &request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(
        document(&answer)["reason"]
            .as_str()
            .unwrap()
            .contains("this one has more"),
        "{answer}"
    );
    let record = stand.records(1).await.pop().unwrap();
    assert_refused(&record, 413);
    let text = String::from_utf8(received.lock().unwrap().clone()).unwrap();
    assert!(
        !text.contains("too much") && !text.contains("0\r\n\r\n"),
        "{text}"
    );
}

#[tokio::test]
async fn the_whole_run_sends_no_more_than_its_bytes() {
    let (stand, origin) = stand("{bytes_out: 10}").await;
    assert!(
        stand
            .raw("allowed.test", &post(&stand, 6))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let answer = stand.raw("allowed.test", &post(&stand, 6)).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(
        document(&answer)["reason"],
        "rule `bounded` lets 10 bytes out in the whole run; what is left is 4, and this would send 6"
    );
    assert!(
        stand
            .raw("allowed.test", &post(&stand, 4))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let at = stand.at("allowed.test");
    let chunked = format!(
        "POST /echo HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    );
    let answer = stand.raw("allowed.test", &chunked).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("they are used up"),
        "{answer}"
    );
    assert!(
        stand.get("allowed.test", "/").await.starts_with("HTTP/1.1 200 "),
        "a request without a body sends none"
    );
    assert_eq!(origin.seen().len(), 3);
    let refused = with_status(&stand, 7, 403).await;
    assert_eq!(refused.len(), 2);
    refused.iter().for_each(|record| assert_refused(record, 403));
    stand.put(&bounded("{bytes_out: 16}"));
    let answer = stand.raw("allowed.test", &post(&stand, 7)).await;
    assert!(answer.contains("what is left is 6,"), "counted on: {answer}");
}

/// An origin that answers with these bytes.
async fn saying(roots: &Roots, bytes: &'static str) -> Origin {
    Origin::raw(roots, &["http/1.1"], move |mut stream| async move {
        read_head(&mut stream).await;
        // A gateway that has heard enough leaves early.
        let _written = stream.write_all(bytes.as_bytes()).await;
        let _closed = stream.shutdown().await;
    })
    .await
}

#[tokio::test]
async fn an_answer_that_is_announced_too_long_is_held_back_with_a_reason() {
    let roots = Roots::new();
    let origin = saying(&roots, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world").await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&bounded("{response_bytes: 10}"));
    let answer = stand.get("allowed.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("http_response_body_size"),
        "{answer}"
    );
    assert!(!answer.contains("hello"), "{answer}");
    assert_refused(&stand.records(1).await[0], 502);
    stand.put(&bounded("{response_bytes: 11}"));
    assert!(stand.get("allowed.test", "/").await.ends_with("hello world"));
}

#[tokio::test]
async fn an_answer_that_grows_too_long_is_torn_visibly() {
    let roots = Roots::new();
    let origin = saying(
        &roots,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    )
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&bounded("{response_bytes: 10}"));
    let answer = stand.get("allowed.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && !answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
    let mut sender = stand.h2("allowed.test").await;
    let request = http::Request::get(format!("https://{}/", stand.at("allowed.test")))
        .body(Full::<Bytes>::default())
        .unwrap();
    let torn = match sender.send_request(request).await {
        Ok(response) => response.into_body().collect().await.is_err(),
        Err(_) => true,
    };
    assert!(torn);
    for record in stand.records(2).await {
        assert!(
            record
                .ending
                .starts_with("incomplete: rule `bounded` lets an answer have 10 bytes"),
            "{record:?}"
        );
    }
}

/// An origin for streams: says what it hears.
async fn parrot() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                let _ended = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (port, task)
}

/// What comes back of these bytes before the stream ends.
async fn said_back(stand: &Stand, bytes: &[u8]) -> String {
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    // A stream that is cut may end in a reset.
    let _ended = stream.read_to_end(&mut back).await;
    String::from_utf8(back).unwrap()
}

#[tokio::test]
async fn streams_keep_within_their_bounds_too() {
    let (port, _task) = parrot().await;
    let stand = Stand::new(&Roots::new(), port).await;
    stand.put(&bounded("{connections: 1, bytes_out: 12, response_bytes: 5}"));
    let mut open = stand.tunnel(&stand.at("opaque.test")).await;
    open.write_all(b"first").await.unwrap();
    let mut back = [0; 5];
    open.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"first");
    let mut second = stand.tunnel(&stand.at("opaque.test")).await;
    assert_eq!(read_all(&mut second).await, "");
    drop(open);
    stand.records(3).await;
    assert_eq!(
        said_back(&stand, b"second").await,
        "",
        "six bytes back are too many"
    );
    stand.records(5).await;
    assert_eq!(said_back(&stand, b"ab").await, "", "one byte is left");
    let records = stand.records(7).await;
    let refused = records
        .iter()
        .find(|record| record.verdict == Verdict::Denied)
        .unwrap();
    assert_eq!((refused.kind.as_str(), refused.rule.as_str()), ("tcp", "stream"));
    assert!(refused.reason.contains("lets 1 request be under way at once"));
    let endings: Vec<_> = records.iter().map(|record| record.ending.as_str()).collect();
    assert!(
        endings
            .iter()
            .any(|ending| ending.contains("an answer have 5 bytes"))
            && endings.iter().any(|ending| ending.contains("what is left is 1,")),
        "{endings:#?}"
    );
}

#[tokio::test]
async fn streams_are_paced_when_they_begin() {
    let (port, _task) = parrot().await;
    let stand = Stand::new(&Roots::new(), port).await;
    stand.put(&bounded("{rate: 1/h}"));
    assert_eq!(said_back(&stand, b"one").await, "one");
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    assert_eq!(read_all(&mut stream).await, "");
    let record = stand.records(3).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(
        record.reason.contains("lets 1 request an hour pass"),
        "{record:?}"
    );
}

#[tokio::test]
async fn a_client_kept_to_its_pace_can_go_on_with_its_connection() {
    let (stand, _origin) = stand("{rate: 1/h}").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at("allowed.test"));
    let mut stream = stand.h1("allowed.test").await;
    assert!(ask(&mut stream, &request).await.0.starts_with("HTTP/1.1 200 "));
    for _ in 0..2 {
        assert!(ask(&mut stream, &request).await.0.starts_with("HTTP/1.1 429 "));
    }
    stand.put(&bounded("{rate: 1000/s}"));
    assert!(ask(&mut stream, &request).await.0.starts_with("HTTP/1.1 200 "));
}
