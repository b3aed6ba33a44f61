//! Bytes and framing as they were, and torn where they were torn (cases P01 to P05, P07, P11).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{Stand, ask, read_all, read_head};
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Everything that reached an origin's socket.
type Received = Arc<Mutex<Vec<u8>>>;

/// An origin that keeps every byte it is sent and answers once the client pauses after a whole head.
async fn keeping(roots: &Roots) -> (Origin, Received) {
    let received: Received = Arc::default();
    let keeping = received.clone();
    let origin = Origin::raw(roots, &["http/1.1"], move |mut stream| {
        let keeping = keeping.clone();
        async move {
            let mut buffer = vec![0; 65536];
            let mut answered = false;
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                keeping.lock().unwrap().extend_from_slice(&buffer[..count]);
                let whole = {
                    let all = keeping.lock().unwrap();
                    all.ends_with(b"0\r\n\r\n")
                        || (all.ends_with(b"\r\n\r\n") && !all.windows(7).any(|w| w == b"chunked"))
                };
                if whole && !answered {
                    answered = true;
                    let _written = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                        .await;
                }
            }
        }
    })
    .await;
    (origin, received)
}

fn text(received: &Received) -> String {
    String::from_utf8_lossy(&received.lock().unwrap()).into_owned()
}

#[tokio::test]
async fn framing_in_disguise_reaches_no_origin() {
    let roots = Roots::new();
    let (origin, received) = keeping(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    for headers in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: \r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
    ] {
        let answer = stand
            .raw(
                "allowed.test",
                &format!("POST /a HTTP/1.1\r\nHost: {at}\r\n{headers}\r\n{smuggled}"),
            )
            .await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["400", "501"].contains(&status), "{headers}: {answer}");
    }
    let answer = stand
        .raw(
            "allowed.test",
            &format!("POST /a HTTP/1.0\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"),
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.0 400"),
        "{answer}"
    );
    assert_eq!(text(&received), "");
    let records = stand.records(14).await;
    assert_eq!(records.len(), 14, "{records:#?}");
}

#[tokio::test]
async fn broken_chunks_are_malformed_and_never_completed_for_the_origin() {
    let roots = Roots::new();
    let (origin, received) = keeping(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let quoted = format!("5;a=\"\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(64 * 1024));
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        &quoted,
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\t\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0 \r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: a\nb\r\n\r\n",
        &long,
    ];
    let mut expected = 0;
    for body in bodies {
        for apart in [false, true] {
            received.lock().unwrap().clear();
            let mut stream = stand.h1("allowed.test").await;
            let head = format!("POST /a HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n");
            let pieces = match apart {
                false => vec![format!("{head}{body}")],
                true => {
                    let (one, two) = body.split_at(2);
                    vec![head, one.to_owned(), two.to_owned()]
                }
            };
            for piece in pieces {
                // What is malformed already may be answered before the rest is there.
                let _written = stream.write_all(piece.as_bytes()).await;
                tokio::task::yield_now().await;
            }
            let answer = read_all(&mut stream).await;
            let shown = &body[..body.len().min(80)];
            assert!(answer.starts_with("HTTP/1.1 400 "), "{shown:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{shown:?}: {answer}");
            let text = text(&received);
            assert!(
                !text.ends_with("\r\n0\r\n\r\n") && !text.contains("smuggled"),
                "{shown:?}: {text}"
            );
            expected += 1;
            let records = stand.records(expected).await;
            assert_eq!(records.len(), expected, "{shown:?}: {records:#?}");
            assert_eq!(
                records[expected - 1].verdict,
                Verdict::Malformed,
                "{shown:?}: {records:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_chunk_extension_is_dropped() {
    let roots = Roots::new();
    let (origin, received) = keeping(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let request = format!(
        "POST /a HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\t\r\n\r\n5;name=value\r\nhello\r\n0\r\n\r\n"
    );
    let (head, _) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        text(&received).ends_with("5\r\nhello\r\n0\r\n\r\n"),
        "{}",
        text(&received)
    );
}

/// HEAD with a length, 204, 304 and an ordinary answer.
async fn bodiless(roots: &Roots, alpn: &[&str]) -> Origin {
    Origin::http(roots, alpn, |request| async move {
        match request.uri().path() {
            "/blob" => Response::builder()
                .header("content-length", "12345")
                .body(full(""))
                .unwrap(),
            "/none" => Response::builder().status(204).body(full("")).unwrap(),
            "/cached" => Response::builder()
                .status(304)
                .header("etag", "\"x\"")
                .body(full(""))
                .unwrap(),
            "/pieces" => {
                let frames = ["a", "b", "c"].map(|text| Ok(http_body::Frame::data(Bytes::from(text))));
                let body: Reply = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
                Response::new(body)
            }
            _ => Response::new(full("ok")),
        }
    })
    .await
}

#[tokio::test]
async fn answers_without_a_body_get_none_on_the_way() {
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let roots = Roots::new();
        let origin = bodiless(&roots, alpn).await;
        let stand = Stand::new(&roots, origin.port).await;
        let at = stand.at("allowed.test");
        let mut stream = stand.h1("allowed.test").await;
        stream
            .write_all(format!("HEAD /blob HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let head = read_head(&mut stream).await;
        assert!(
            head.contains("content-length: 12345\r\n") && !head.contains("transfer-encoding"),
            "{head}"
        );
        for (path, status) in [("/none", 204), ("/cached", 304)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nIf-None-Match: \"x\"\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")) && !head.contains("transfer-encoding"),
                "{head}"
            );
        }
        let (head, body) = ask(&mut stream, &format!("GET /last HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert_eq!(body, "ok", "{head}");
        let chunked = stand.get("allowed.test", "/pieces").await;
        assert!(chunked.ends_with("0\r\n\r\n"), "{chunked}");
        let closed = stand
            .raw(
                "allowed.test",
                &format!("GET /pieces HTTP/1.0\r\nHost: {at}\r\n\r\n"),
            )
            .await;
        assert!(
            closed.ends_with("\r\n\r\nabc") && !closed.contains("chunked"),
            "{closed}"
        );
    }
}

#[tokio::test]
async fn unchanged_content_keeps_its_length_both_ways() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |request| async move {
        assert!(
            request.headers().contains_key("content-length"),
            "{:?}",
            request.headers()
        );
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(full(body))
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    for size in [3, 5_000_000] {
        let mut stream = stand.h1("allowed.test").await;
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let body: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
        let head = format!("POST /up HTTP/1.1\r\nHost: {at}\r\nContent-Length: {size}\r\n\r\n");
        let sending = async {
            writer.write_all(head.as_bytes()).await.unwrap();
            writer.write_all(&body).await.unwrap();
            writer.flush().await.unwrap();
        };
        let receiving = async {
            let head = read_head(&mut reader).await;
            assert!(head.contains(&format!("content-length: {size}\r\n")), "{head}");
            let mut back = vec![0; size as usize];
            reader.read_exact(&mut back).await.unwrap();
            back
        };
        let ((), back) = tokio::join!(sending, receiving);
        assert!(back == body);
    }
}

/// An origin that sends these bytes after the head, then ends the TCP stream or keeps silent.
async fn torn(roots: &Roots, bytes: &'static [u8], silent: bool) -> Origin {
    Origin::raw(roots, &["http/1.1"], move |mut stream| async move {
        read_head(&mut stream).await;
        let _written = stream.write_all(bytes).await;
        let _flushed = stream.flush().await;
        if silent {
            let mut rest = Vec::new();
            let _ended = stream.read_to_end(&mut rest).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_torn_answer_looks_torn() {
    let roots = Roots::new();
    let limits = Limits {
        body_idle: Duration::from_millis(300),
        ..Limits::default()
    };
    for (bytes, silent, got) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789012345678901234567890123456789"[..],
            false,
            40,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            false,
            5,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            true,
            5,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
            false,
            5,
        ),
    ] {
        let origin = torn(&roots, bytes, silent).await;
        let stand = Stand::with_limits(&roots, origin.port, limits.clone()).await;
        let answer = stand.get("allowed.test", "/").await;
        assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
        let mut sender = stand.h2("allowed.test").await;
        let request = http::Request::builder()
            .uri(format!("https://{}/", stand.at("allowed.test")))
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let error = response.into_body().collect().await.unwrap_err();
        assert!(
            error.to_string().contains("stream") || error.to_string().contains("body"),
            "{error}"
        );
        let records = stand.records(2).await;
        for record in &records {
            assert!(record.ending.starts_with("incomplete"), "{record:?}");
            assert_eq!(record.bytes_in, got, "{record:?}");
        }
        assert!(
            !silent || records[0].ending.contains("upstream idle"),
            "{records:?}"
        );
    }
}

#[tokio::test]
async fn events_pass_as_they_come_and_a_long_read_is_recorded_early() {
    let roots = Roots::new();
    let (events, queue) = mpsc::unbounded_channel::<Bytes>();
    let queue = Arc::new(Mutex::new(Some(queue)));
    let origin = Origin::http(&roots, &["h2"], move |_| {
        let queue = queue.lock().unwrap().take().unwrap();
        async move {
            let frames = futures_util::stream::unfold(queue, |mut queue| async move {
                queue
                    .recv()
                    .await
                    .map(|piece| (Ok(http_body::Frame::data(piece)), queue))
            });
            let body: Reply = StreamBody::new(frames).boxed_unsync();
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(body)
                .unwrap()
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut sender = stand.h2("allowed.test").await;
    let request = http::Request::builder()
        .uri(format!("https://{}/", stand.at("allowed.test")))
        .body(Full::<Bytes>::default())
        .unwrap();
    events.send(Bytes::from("data: first\n\n")).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "data: first\n\n"
    );
    for number in 0..20 {
        let event = format!("data: {number}\n\n");
        events.send(Bytes::from(event.clone())).unwrap();
        let frame = tokio::time::timeout(Duration::from_secs(5), body.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    let waiting = stand.records(1);
    let (records, _) = tokio::join!(
        waiting,
        tokio::time::timeout(Duration::from_millis(1500), body.frame())
    );
    assert_eq!(records[0].ending, "open");
    drop(events);
    assert!(body.collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(stand.records(2).await[1].ending, "complete");
}

#[tokio::test]
async fn a_client_that_leaves_is_written_down() {
    let roots = Roots::new();
    let origin = torn(&roots, b"", true).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    stream
        .write_all(format!("GET /slow HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    while origin.connections() == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        (record.ending.as_str(), record.path.as_deref()),
        ("the client went away", Some("/slow"))
    );
}

#[tokio::test]
async fn a_write_is_recorded_before_its_answer_is_seen() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    stream
        .write_all(format!("POST /echo HTTP/1.1\r\nHost: {at}\r\nContent-Length: 2\r\n\r\nhi").as_bytes())
        .await
        .unwrap();
    read_head(&mut stream).await;
    assert!(stand.sink.head() >= 1, "durable before the head was let through");
    let record = &stand.records(1).await[0];
    assert_eq!(
        (record.method.as_deref(), record.status),
        (Some("POST"), Some(200))
    );
}

#[tokio::test]
async fn the_upstream_has_the_word_on_expect_continue() {
    let roots = Roots::new();
    let origin = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.starts_with("PUT /moved") {
            let _written = stream
                .write_all(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
                .await;
            return;
        }
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 2];
        stream.read_exact(&mut body).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let head = |path| {
        format!("PUT {path} HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    };
    let mut stream = stand.h1("allowed.test").await;
    stream.write_all(head("/moved").as_bytes()).await.unwrap();
    let moved = read_head(&mut stream).await;
    assert!(moved.starts_with("HTTP/1.1 307 "), "{moved}");
    let mut stream = stand.h1("allowed.test").await;
    stream.write_all(head("/made").as_bytes()).await.unwrap();
    let go_on = read_head(&mut stream).await;
    assert!(go_on.starts_with("HTTP/1.1 100 "), "{go_on}");
    stream.write_all(b"hi").await.unwrap();
    let made = read_head(&mut stream).await;
    assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
}

#[tokio::test]
async fn upgrades_to_what_cannot_be_read_are_refused_in_words() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let (head, body) = ask(
        &mut stream,
        &format!("GET /ws HTTP/1.1\r\nHost: {at}\r\nConnection: upgrade\r\nUpgrade: x-shell\r\n\r\n"),
    )
    .await;
    assert!(
        head.starts_with("HTTP/1.1 501 ") && body.contains("x-shell"),
        "{head}{body}"
    );
    assert!(origin.seen().is_empty());
}

/// Answers in the middle of an upload and reads no more of it.
pub(crate) async fn origin_that_answers_early(roots: &Roots) -> Origin {
    Origin::raw(roots, &["http/1.1"], |mut stream| async move {
        read_head(&mut stream).await;
        let mut some = vec![0; 100_000];
        stream.read_exact(&mut some).await.unwrap();
        let answer =
            b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large";
        stream.write_all(answer).await.unwrap();
        // It reads no more, and leaves the connection open until the client closes.
        std::future::pending().await
    })
    .await
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_is_read_whole() {
    let roots = Roots::new();
    let origin = origin_that_answers_early(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let head = format!("PUT /big HTTP/1.1\r\nHost: {at}\r\nContent-Length: 100000000\r\n\r\n");
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let sending = async {
        writer.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![0; 65536];
        for _ in 0..1500 {
            if writer.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    let receiving = async {
        let head = read_head(&mut reader).await;
        let mut body = [0; 9];
        reader.read_exact(&mut body).await.unwrap();
        (head, body)
    };
    tokio::select! {
        (head, body) = receiving => {
            assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
            assert_eq!(&body, b"too large");
        }
        () = async { sending.await; std::future::pending().await } => {}
    }
}

#[tokio::test]
async fn draining_lets_an_open_exchange_end_and_takes_nothing_new() {
    let roots = Roots::new();
    let (events, queue) = mpsc::unbounded_channel::<()>();
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let origin = Origin::http(&roots, &["http/1.1"], move |_| {
        let queue = queue.clone();
        async move {
            queue.lock().await.recv().await;
            Response::new(full("late"))
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    stream
        .write_all(format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    while origin.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let finishing = async {
        tokio::task::yield_now().await;
        events.send(()).unwrap();
        crate::stand::read_all(&mut stream).await
    };
    let ((), answer) = tokio::join!(stand.gateway.drain(), finishing);
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("late"),
        "{answer}"
    );
    assert_eq!(stand.records(1).await[0].ending, "complete");
}
