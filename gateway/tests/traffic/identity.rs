//! Names that must agree: dialled, SNI, Host and `:authority`; and every request decided anew (cases P09, P10, Q05, Q06).
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, Stand, ask, read_all};
use crate::ways::hello_for;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use sallyport_gateway::control::types::Verdict;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

/// A ClientHello with this SNI, whatever it is, as OpenSSL would send it.
async fn openssl_sni(stand: &Stand, authority: &str, sni: Option<&str>) -> String {
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), &stand.ca_pem).unwrap();
    let mut command = tokio::process::Command::new("openssl");
    command.args([
        "s_client",
        "-proxy",
        &stand.proxy.to_string(),
        "-connect",
        authority,
        "-CAfile",
    ]);
    command.arg(ca.path()).args([
        "-proxy_user",
        "run-1",
        "-proxy_pass",
        &format!("pass:{}", stand.token),
    ]);
    match sni {
        Some(sni) => command.args(["-servername", sni]),
        None => command.arg("-noservername"),
    };
    let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test]
async fn the_dialled_name_may_be_asked_for_in_any_case_with_a_dot_or_not_at_all() {
    let (stand, _origin) = stand().await;
    let at = stand.at("allowed.test");
    for sni in [
        None,
        Some("allowed.test"),
        Some("ALLOWED.test"),
        Some("allowed.test."),
    ] {
        let text = openssl_sni(&stand, &at, sni).await;
        assert!(
            text.contains("Server certificate") && text.contains("Verify return code: 0 (ok)"),
            "{sni:?}: {text}"
        );
    }
}

#[tokio::test]
async fn another_name_in_the_client_hello_is_refused_and_recorded() {
    let (stand, origin) = stand().await;
    let at = stand.at("allowed.test");
    let odd = ["other.test", "[allowed.test]", "127.0.0.1", "allowed.test.."];
    for sni in odd {
        let text = openssl_sni(&stand, &at, Some(sni)).await;
        assert!(text.contains("no peer certificate available"), "{sni}: {text}");
    }
    // What no client of ours would send.
    let impossible = [String::new(), "a".repeat(300), "allowed.test\0".to_owned()];
    for sni in &impossible {
        let mut stream = stand.tunnel(&at).await;
        stream.write_all(&hello_for(sni)).await.unwrap();
        let mut answer = Vec::new();
        // An alert, or the end at once.
        let _ended = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer[0] == 0x15, "{sni:?}: {answer:?}");
    }
    let records = stand.records(odd.len() + impossible.len()).await;
    assert!(
        records
            .iter()
            .all(|record| record.kind == "handshake" && record.verdict == Verdict::Malformed),
        "{records:#?}"
    );
    assert!(
        records[0]
            .reason
            .contains("`other.test` is not the dialled `allowed.test`"),
        "{}",
        records[0].reason
    );
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_address_that_was_dialled_gets_a_leaf_for_the_address() {
    let (stand, _origin) = stand().await;
    let at = stand.at("127.0.0.1");
    for sni in [None, Some("127.0.0.1")] {
        let text = openssl_sni(&stand, &at, sni).await;
        assert!(
            text.contains("Server certificate") && text.contains("Verify return code: 0 (ok)"),
            "{sni:?}: {text}"
        );
    }
    let mut stream = stand.tls(&at, "127.0.0.1", &[]).await.unwrap();
    let (head, _) = ask(&mut stream, &format!("GET /a HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn names_of_any_length_have_a_leaf_that_verifies() {
    let (stand, _origin) = stand().await;
    let long = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(56),
        "test".to_owned(),
    ]
    .join(".");
    let middle = format!("{}.{}.test", "x".repeat(35), "y".repeat(34));
    assert_eq!((long.len(), middle.len()), (253, 75));
    for name in [long.as_str(), middle.as_str(), "a_b.test", "xn--bcher-kva.test"] {
        let mut stream = stand.tls(&format!("{name}:443"), name, &[]).await.unwrap();
        let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 403 "), "{name}: {head}");
    }
}

#[tokio::test]
async fn a_foreign_host_is_misdirected_and_nothing_goes_upstream() {
    let (stand, origin) = stand().await;
    let port = stand.port;
    for host in [
        format!("other.test:{port}"),
        "allowed.test".to_owned(),
        "allowed.test:8443".to_owned(),
    ] {
        let answer = stand
            .raw("allowed.test", &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
    }
    for hosts in [
        "Host: \r\n".to_owned(),
        String::new(),
        format!("Host: allowed.test:{port}\r\nHost: allowed.test:{port}\r\n"),
        format!("Host: allowed.test:{port}, other.test:{port}\r\n"),
    ] {
        let answer = stand
            .raw("allowed.test", &format!("GET / HTTP/1.1\r\n{hosts}\r\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
    let records = stand.records(7).await;
    assert_eq!(records.len(), 7);
    assert!(records.iter().all(|record| record.verdict == Verdict::Malformed));
    assert!(records[0].reason.contains("other.test") && records[0].host == "allowed.test");
}

#[tokio::test]
async fn another_authority_on_an_http2_stream_is_misdirected() {
    let (stand, origin) = stand().await;
    let mut sender = stand.h2("allowed.test").await;
    for (authority, host, status) in [
        ("allowed.test", None, 200),
        ("other.test", None, 421),
        ("allowed.test", Some("other.test"), 421),
        ("allowed.test", None, 200),
    ] {
        let mut request = http::Request::builder().uri(format!("https://{}/", stand.at(authority)));
        if let Some(host) = host {
            request = request.header("host", stand.at(host));
        }
        let response = sender
            .send_request(request.body(Full::<Bytes>::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), status, "{authority} {host:?}");
    }
    assert_eq!(origin.seen().len(), 2);
}

#[tokio::test]
async fn the_second_request_on_a_connection_is_decided_anew() {
    let (stand, origin) = stand().await;
    let at = stand.at("api.test");
    let mut stream = stand.h1("api.test").await;
    let both =
        format!("GET /public/a HTTP/1.1\r\nHost: {at}\r\n\r\nGET /admin/x HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let (first, _) = ask(&mut stream, &both).await;
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    let (second, _) = ask(&mut stream, "").await;
    assert!(second.starts_with("HTTP/1.1 403 "), "{second}");
    let (third, _) = ask(
        &mut stream,
        &format!("GET /public/../admin HTTP/1.1\r\nHost: {at}\r\n\r\n"),
    )
    .await;
    assert!(third.starts_with("HTTP/1.1 403 "), "{third}");
    let (fourth, _) = ask(
        &mut stream,
        &format!("GET /public/b HTTP/1.1\r\nHost: {at}\r\n\r\n"),
    )
    .await;
    assert!(fourth.starts_with("HTTP/1.1 200 "), "{fourth}");
    assert_eq!(origin.seen().len(), 2);
}

#[tokio::test]
async fn a_rule_taken_away_holds_on_the_open_connection() {
    let (stand, _origin) = stand().await;
    let at = stand.at("allowed.test");
    let request = format!("GET /a HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let mut stream = stand.h1("allowed.test").await;
    assert!(ask(&mut stream, &request).await.0.starts_with("HTTP/1.1 200 "));
    stand.put(&POLICY.replace("host: [allowed.test, 127", "host: [gone.test, 127"));
    let (head, body) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(body.contains("decision"), "{body}");
    stand.put(POLICY);
    assert!(ask(&mut stream, &request).await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn requests_cut_anywhere_are_read_the_same() {
    let (stand, origin) = stand().await;
    let at = stand.at("allowed.test");
    let request = format!("POST /echo HTTP/1.1\r\nHost: {at}\r\nContent-Length: 5\r\n\r\nhello");
    let mut stream = stand.h1("allowed.test").await;
    for cut in (0..request.len()).step_by(7) {
        stream.write_all(&request.as_bytes()[..cut]).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
        let (head, body) = ask(&mut stream, &request[cut..]).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "cut at {cut}: {head}");
        assert_eq!(body, "hello");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn a_session_that_is_closed_ends_its_connections() {
    let (stand, _origin) = stand().await;
    let mut stream = stand.h1("allowed.test").await;
    let at = stand.at("allowed.test");
    ask(&mut stream, &format!("GET /a HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    stand.sessions.delete("run-1").unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
    let mut again = stand.dial().await;
    again
        .write_all(
            format!(
                "CONNECT {at} HTTP/1.1\r\nConnection: close\r\nHost: {at}\r\nProxy-Authorization: {}\r\n\r\n",
                stand.authorization()
            )
            .as_bytes(),
        )
        .await
        .unwrap();
    assert!(read_all(&mut again).await.starts_with("HTTP/1.1 407 "));
}

#[tokio::test]
async fn a_body_is_collected_over_http2_to_an_http1_origin() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut sender = stand.h2("allowed.test").await;
    let request = http::Request::builder()
        .method("POST")
        .uri(format!("https://{}/echo", stand.at("allowed.test")))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::new(Bytes::from("hello")))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    let seen = origin.seen();
    assert!(seen[0].contains("cookie: a=1; b=2"), "{seen:?}");
    assert!(
        seen[0].contains(&format!("host: {}", stand.at("allowed.test"))),
        "{seen:?}"
    );
}
