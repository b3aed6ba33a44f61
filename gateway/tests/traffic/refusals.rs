//! What a tool reads when something is refused or the upstream fails (cases Q12, P08, P14), and what is written down.
use crate::origin::{NAMES, Origin, Roots};
use crate::stand::{Stand, ask, read_all, read_head};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use sallyport_gateway::control::types::{AccessAnswer, AccessRequest, AuditRecord, Verdict};
use sallyport_gateway::limits::Limits;
use sallyport_policy::{Remedy, Wanted};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

fn document(answer: &str) -> Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn only(records: Vec<AuditRecord>) -> AuditRecord {
    assert_eq!(records.len(), 1, "{records:#?}");
    records.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_refusal_comes_inside_tls_with_everything_that_helps() {
    let (stand, origin) = stand().await;
    let answer = stand.get("docs.test", "/page").await;
    assert!(
        answer.starts_with("HTTP/1.1 403 Forbidden (sallyport decision "),
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
    let document = document(&answer);
    assert_eq!(document["rule"], "docs");
    assert_eq!(document["remedy"]["kind"], "request-access");
    assert_eq!(document["hint"], "Read the copy in the repository.");
    assert_eq!(document["error"], document["detail"], "npm prints `error` alone");
    assert!(
        document["detail"]
            .as_str()
            .unwrap()
            .contains("sallyport-shim request-access docs.test"),
        "{document}"
    );
    let record = only(stand.records(1).await);
    assert_eq!(document["decision"], record.id.as_str());
    assert!(
        answer.contains(&format!("x-sallyport-decision: {}", record.id)),
        "{answer}"
    );
    assert_eq!(
        (record.verdict, record.rule.as_str(), record.status),
        (Verdict::Denied, "docs", Some(403))
    );
    assert_eq!(record.refusal.unwrap().remedy, Remedy::RequestAccess);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_answer_to_head_has_the_same_head_and_no_body() {
    let (stand, _origin) = stand().await;
    let at = stand.at("denied.test");
    let mut stream = stand.h1("denied.test").await;
    stream
        .write_all(format!("HEAD / HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let head = read_head(&mut stream).await;
    assert!(
        head.starts_with("HTTP/1.1 403 ") && !head.contains("content-length: 0"),
        "{head}"
    );
    let (next, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(next.starts_with("HTTP/1.1 403 "), "{next}");
    assert!(body.starts_with('{'), "{body}");
}

#[tokio::test]
async fn git_gets_words_that_it_prints() {
    let (stand, _origin) = stand().await;
    let at = stand.at("denied.test");
    let request = format!(
        "GET /x.git/info/refs HTTP/1.1\r\nHost: {at}\r\nUser-Agent: git/2.39\r\nConnection: close\r\n\r\n"
    );
    let answer = stand.raw("denied.test", &request).await;
    assert!(answer.contains("content-type: text/plain"), "{answer}");
    assert!(answer.contains("\ndecision "), "{answer}");
}

#[tokio::test]
async fn a_refusal_over_http2_is_the_same_document() {
    let (stand, _origin) = stand().await;
    let mut sender = stand.h2("denied.test").await;
    let request = http::Request::builder()
        .uri(format!("https://{}/", stand.at("denied.test")))
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["rule"], "default");
}

#[tokio::test]
async fn a_large_upload_to_a_refused_name_still_gets_its_answer() {
    let (stand, _origin) = stand().await;
    let at = stand.at("denied.test");
    let mut stream = stand.h1("denied.test").await;
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 "),
        "refused before any 100: {answer}"
    );
}

#[tokio::test]
async fn a_record_tells_whether_tls_was_spoken_and_on_which_grants_it_rests() {
    let (stand, _origin) = stand().await;
    stand.get("docs.test", "/page").await;
    let wanted = Wanted {
        credential: None,
        host: "docs.test".into(),
        port: stand.port,
        method: None,
        path: None,
    };
    let wish = AccessRequest {
        wanted,
        why: String::new(),
    };
    let answer = stand.sessions.access("run-1", &wish).await.unwrap();
    let AccessAnswer::Granted { grant } = answer else {
        panic!("{answer:?}")
    };
    stand.get("docs.test", "/page").await;
    let records = stand.records(3).await;
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.kind.as_str(), record.tls, record.grants.as_slice()))
        .collect();
    let granted = [grant.id];
    assert_eq!(
        told,
        [
            ("http", Some(true), &[][..]),
            ("access", None, &[]),
            ("http", Some(true), &granted)
        ]
    );
}

#[tokio::test]
async fn an_ssh_client_is_told_and_left() {
    let (stand, _origin) = stand().await;
    let mut stream = stand.tunnel("denied.test:22").await;
    stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
    let text = read_all(&mut stream).await;
    assert!(text.starts_with("SSH-2.0-sallyport\r\n"), "{text}");
    assert!(
        text.contains("sallyport: ") && text.contains("(decision "),
        "{text}"
    );
    let record = only(stand.records(1).await);
    assert_eq!(
        (record.kind.as_str(), record.verdict, record.port),
        ("tcp", Verdict::Denied, 22)
    );
    assert!(text.contains(&record.id), "{text}");
}

#[tokio::test]
async fn a_database_client_is_told_in_its_own_words() {
    let (stand, origin) = stand().await;
    let mut stream = stand.tunnel("denied.test:5432").await;
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'N');
    stream
        .write_all(b"\0\0\0\x12\0\x03\0\0user\0ada\0\0")
        .await
        .unwrap();
    let text = read_all(&mut stream).await;
    assert!(text.starts_with('E'), "{text}");
    assert!(
        text.contains("C28000\0Msallyport: no rule allows") && text.contains("\0DRule `default`."),
        "{text}"
    );
    let record = only(stand.records(1).await);
    assert_eq!(
        (record.kind.as_str(), record.verdict, record.port),
        ("postgres", Verdict::Denied, 5432)
    );
    assert!(text.contains(&record.id), "{text}");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn unknown_bytes_are_refused_and_explained_in_the_log() {
    let (stand, origin) = stand().await;
    let mut stream = stand.tunnel(&stand.at("allowed.test")).await;
    stream.write_all(&[0x00, 0x0c, 0, 4, 1, 2, 3]).await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    let record = only(stand.records(1).await);
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(
        record.reason.contains("AMQP") && record.reason.contains("protocol: tcp"),
        "{}",
        record.reason
    );
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn silence_ends_at_its_limit_with_a_record() {
    let roots = Roots::new();
    let limits = Limits {
        first_bytes: Duration::from_millis(50),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, 1, limits).await;
    let mut stream = stand.tunnel("allowed.test:1").await;
    assert_eq!(read_all(&mut stream).await, "");
    assert_eq!(only(stand.records(1).await).verdict, Verdict::Denied);
}

#[tokio::test]
async fn half_a_head_ends_at_its_limit_and_an_idle_connection_lives_longer() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        head: Duration::from_millis(100),
        idle: Duration::from_millis(800),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let mut idle = stand.h1("allowed.test").await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at("allowed.test"));
    ask(&mut idle, &request).await;
    let mut slow = stand.h1("allowed.test").await;
    slow.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
    assert_eq!(read_all(&mut slow).await, "");
    let (head, _) = ask(&mut idle, &request).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "still open: {head}");
    assert_eq!(read_all(&mut idle).await, "", "and closed in the end");
    let records = stand.records(3).await;
    let malformed: Vec<_> = records
        .iter()
        .filter(|record| record.verdict == Verdict::Malformed)
        .collect();
    assert_eq!((records.len(), malformed.len()), (3, 1), "{records:#?}");
    assert!(
        malformed[0].reason.contains("did not come to its end"),
        "{}",
        malformed[0].reason
    );
}

#[tokio::test]
async fn an_opaque_stream_passes_where_a_rule_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The server speaks first.
        stream.write_all(b"hello, who is it?\n").await.unwrap();
        let mut name = [0; 4];
        stream.read_exact(&mut name).await.unwrap();
        stream.write_all(b"welcome\n").await.unwrap();
        name
    });
    let stand = Stand::new(&Roots::new(), port).await;
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.write_all(b"ada\n").await.unwrap();
    assert_eq!(read_all(&mut stream).await, "welcome\n");
    assert_eq!(&server.await.unwrap(), b"ada\n");
    drop(stream);
    let records = stand.records(2).await;
    let ends: Vec<_> = records
        .iter()
        .map(|record| (record.ending.as_str(), record.bytes_out, record.bytes_in))
        .collect();
    assert_eq!(ends, [("open", 0, 0), ("complete", 4, 26)]);
    assert_eq!(records[0].id, records[1].id);
}

/// Status, error type and record of a GET to an origin that fails in some way.
async fn failing(stand: &Stand) -> (String, Value, AuditRecord) {
    let answer = stand.get("allowed.test", "/").await;
    let record = stand.records(1).await.pop().unwrap();
    (
        answer.split(' ').nth(1).unwrap().to_owned(),
        document(&answer),
        record,
    )
}

#[tokio::test]
async fn an_upstream_that_refuses_is_502() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (status, document, record) = failing(&Stand::new(&Roots::new(), port).await).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("502", Some("connection_refused"))
    );
    assert_eq!(
        (record.verdict, record.rule.as_str()),
        (Verdict::UpstreamFailed, "allowed")
    );
}

#[tokio::test]
async fn an_upstream_whose_certificate_nobody_vouches_for_is_502_with_the_reason() {
    let origin = Origin::echo(&Roots::new(), &["h2"]).await;
    let (status, document, record) = failing(&Stand::new(&Roots::new(), origin.port).await).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("502", Some("tls_certificate_error"))
    );
    assert!(
        record.reason.contains("its issuer `CN=origins"),
        "{}",
        record.reason
    );
}

#[tokio::test]
async fn an_upstream_with_a_certificate_for_another_name_is_502() {
    let roots = Roots::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = roots.acceptor(&NAMES[1..2], &["http/1.1"]);
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.map(drop)
    });
    let (status, document, record) = failing(&Stand::new(&roots, port).await).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("502", Some("tls_certificate_error"))
    );
    assert!(record.reason.contains("another name"), "{}", record.reason);
    assert!(task.await.unwrap().is_err());
}

#[tokio::test]
async fn an_upstream_that_speaks_no_tls_is_502() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.0 400 no TLS here, sorry about that\r\n\r\n")
            .await
            .unwrap();
    });
    let (status, document, _) = failing(&Stand::new(&Roots::new(), port).await).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("502", Some("tls_protocol_error"))
    );
}

#[tokio::test]
async fn an_upstream_that_hangs_is_504_at_each_stage() {
    let roots = Roots::new();
    let short = Duration::from_millis(100);
    let limits = Limits {
        upstream_handshake: short,
        upstream_first_byte: short,
        ..Limits::default()
    };
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stand = Stand::with_limits(&roots, silent.local_addr().unwrap().port(), limits.clone()).await;
    let (status, document, _) = failing(&stand).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("504", Some("connection_timeout"))
    );
    let origin = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        let mut sink = Vec::new();
        let _ended = stream.read_to_end(&mut sink).await;
    })
    .await;
    let (status, document, _) = failing(&Stand::with_limits(&roots, origin.port, limits).await).await;
    assert_eq!(
        (status.as_str(), document["proxy_error"].as_str()),
        ("504", Some("http_response_timeout"))
    );
}

#[tokio::test]
async fn an_upstream_that_closes_or_talks_nonsense_is_502() {
    let roots = Roots::new();
    for (bytes, error) in [
        (&b""[..], "connection_terminated"),
        (b"ICY 200 OK\r\n\r\n", "http_protocol_error"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "http_protocol_error",
        ),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "http_protocol_error"),
    ] {
        let origin = Origin::raw(&roots, &["http/1.1"], move |mut stream| async move {
            read_head(&mut stream).await;
            let _written = stream.write_all(bytes).await;
            let _closed = stream.shutdown().await;
        })
        .await;
        let (status, document, _) = failing(&Stand::new(&roots, origin.port).await).await;
        assert_eq!(
            (status.as_str(), document["proxy_error"].as_str()),
            ("502", Some(error)),
            "{document}"
        );
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_502() {
    let (stand, _origin) = stand().await;
    stand.put("version: 1\nname: t\ndefault: deny\nrules:\n  - id: a\n    to: {host: nowhere.test, methods: [GET], port: PORT}\n    \
               effect: allow\n");
    let answer = stand.get("nowhere.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("dns_error"),
        "{answer}"
    );
}

/// An origin whose kept connections break with their second request.
async fn closing_origin(roots: &Roots) -> (Origin, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let seen: std::sync::Arc<std::sync::Mutex<Vec<String>>> = std::sync::Arc::default();
    let noting = seen.clone();
    let origin = Origin::raw(roots, &["http/1.1"], move |mut stream| {
        let noting = noting.clone();
        async move {
            let first = read_head(&mut stream).await;
            noting.lock().unwrap().push(first);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
            let head = read_head(&mut stream).await;
            if !head.is_empty() {
                noting.lock().unwrap().push(head);
            }
        }
    })
    .await;
    (origin, seen)
}

#[tokio::test]
async fn a_get_on_a_connection_that_just_died_is_repeated_and_a_post_never() {
    let roots = Roots::new();
    let (origin, seen) = closing_origin(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    for round in 0..6 {
        let (head, body) = ask(
            &mut stream,
            &format!("GET /{round} HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        )
        .await;
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body == "ok",
            "{round}: {head}"
        );
    }
    let mut outcomes = Vec::new();
    for round in 0..6 {
        let request = format!("POST /p{round} HTTP/1.1\r\nHost: {at}\r\nContent-Length: 2\r\n\r\nhi");
        let (head, body) = ask(&mut stream, &request).await;
        outcomes.push(head.split(' ').nth(1).unwrap().to_owned());
        assert!(
            head.starts_with("HTTP/1.1 200 ") || body.contains("may have acted"),
            "{head}{body}"
        );
    }
    assert!(outcomes.iter().any(|status| status == "502"), "{outcomes:?}");
    let posts = |round: usize| {
        let target = format!("POST /p{round} ");
        seen.lock()
            .unwrap()
            .iter()
            .filter(|head| head.contains(&target))
            .count()
    };
    assert!(
        (0..6).all(|round| posts(round) == 1),
        "{:?}",
        seen.lock().unwrap()
    );
}
