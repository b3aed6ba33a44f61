//! Framing that two readers could read differently, either way (cases P01, P02, P05, P08).
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_head};
use sallyport_gateway::control::types::Verdict;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_length_beside_a_coding_is_malformed_also_behind_another_request() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let smuggled = format!("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n");
    for headers in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "transfer-encoding: chunked\r\nX: y\r\ncontent-length: 0\r\n",
    ] {
        let bad = format!("POST /a HTTP/1.1\r\nHost: {at}\r\n{headers}\r\n{smuggled}");
        let answer = stand.raw("allowed.test", &bad).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.matches("HTTP/1.1 ").count() == 1,
            "{answer}"
        );
        let mut stream = stand.h1("allowed.test").await;
        let good = format!(
            "POST /echo HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        );
        for _ in 0..2 {
            let (head, body) = ask(&mut stream, &good).await;
            assert_eq!(body, "ok", "{head}");
        }
        let (head, _) = ask(&mut stream, &bad).await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        // Two at once, where the second's head cannot be seen alone.
        let both = stand.raw("allowed.test", &format!("{good}{bad}")).await;
        assert!(
            both.contains("HTTP/1.1 400 ") && both.matches("HTTP/1.1 ").count() == 2,
            "{both}"
        );
    }
    assert!(
        origin.seen().iter().all(|head| head.starts_with("POST /echo")),
        "{:?}",
        origin.seen()
    );
    let records = stand.records(27).await;
    let malformed = records
        .iter()
        .filter(|record| record.verdict == Verdict::Malformed);
    assert_eq!(malformed.count(), 9);
}

/// An origin that answers each connection's first request with these bytes.
async fn saying(roots: &Roots, bytes: &'static str) -> Origin {
    Origin::raw(roots, &["http/1.1"], move |mut stream| async move {
        read_head(&mut stream).await;
        let _written = stream.write_all(bytes.as_bytes()).await;
        let mut rest = Vec::new();
        let _ended = stream.read_to_end(&mut rest).await;
    })
    .await
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_is_none() {
    let roots = Roots::new();
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\0: a\r\nContent-Length: 0\r\n\r\n",
    ] {
        let origin = saying(&roots, bytes).await;
        let stand = Stand::new(&roots, origin.port).await;
        let answer = stand.get("allowed.test", "/").await;
        assert!(
            answer.starts_with("HTTP/1.1 502 ") && !answer.contains("Set-Cookie"),
            "{bytes:?}: {answer}"
        );
    }
}

#[tokio::test]
async fn broken_chunks_of_an_answer_end_it_as_incomplete() {
    let roots = Roots::new();
    for chunks in [
        "2\r\nok\r\n5\nhello\r\n0\r\n\r\n",
        "2\r\nok\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        "2\r\nok\r\n2\r\nokXX0\r\n\r\n",
        "2\r\nok\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
        "2\r\nok\r\n0x5\r\nhello\r\n0\r\n\r\n",
    ] {
        let origin = Origin::raw(&roots, &["http/1.1"], move |mut stream| async move {
            read_head(&mut stream).await;
            let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            let _written = stream.write_all(answer.as_bytes()).await;
            let mut rest = Vec::new();
            let _ended = stream.read_to_end(&mut rest).await;
        })
        .await;
        let stand = Stand::new(&roots, origin.port).await;
        let answer = stand.get("allowed.test", "/").await;
        assert!(
            !answer.ends_with("0\r\n\r\n") && !answer.contains("hello"),
            "{chunks:?}: {answer}"
        );
        let record = stand.records(1).await.pop().unwrap();
        assert!(record.ending.starts_with("incomplete"), "{chunks:?}: {record:#?}");
    }
}

#[tokio::test]
async fn blanks_with_which_an_origin_pads_its_sizes_are_not_sent_on() {
    let roots = Roots::new();
    let origin = saying(
        &roots,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5  \r\nhello\r\n0 \r\n\r\n",
    )
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let answer = stand.get("allowed.test", "/").await;
    assert!(answer.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn an_upstream_cannot_answer_what_was_not_asked() {
    let roots = Roots::new();
    let origin = saying(
        &roots,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
    )
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    for _ in 0..5 {
        let (head, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert_eq!(body, "ok", "{head}");
    }
    let both = saying(
        &roots,
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    let stand = Stand::new(&roots, both.port).await;
    let answer = stand.get("allowed.test", "/").await;
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        !head.contains("content-length") && answer.ends_with("hello\r\n0\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn what_may_have_acted_is_never_sent_twice_and_reads_are_repeated_once() {
    let roots = Roots::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    // It answers each connection's first request, and closes at the first byte of the next.
    let origin = Origin::raw(&roots, &["http/1.1"], move |mut stream| {
        let counter = counter.clone();
        async move {
            let head = read_head(&mut stream).await;
            counter.fetch_add(usize::from(head.starts_with("POST")), Ordering::SeqCst);
            let _written = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
            let next = read_head(&mut stream).await;
            counter.fetch_add(usize::from(next.starts_with("POST")), Ordering::SeqCst);
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    for _ in 0..50 {
        let (head, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert_eq!(body, "ok", "{head}");
    }
    let mut failed = 0;
    for number in 0..50 {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {at}\r\nIdempotency-Key: {number}\r\nContent-Length: 0\r\n\r\n"
        );
        let (head, body) = ask(&mut stream, &request).await;
        if !head.starts_with("HTTP/1.1 200 ") {
            assert!(
                head.starts_with("HTTP/1.1 502 ") && body.contains("may have acted"),
                "{head}{body}"
            );
            failed += 1;
        }
    }
    assert!(failed > 0);
    assert_eq!(asked.load(Ordering::SeqCst), 50, "each POST was sent once");
}
