//! Refusals in `mode: observe`: what they would refuse passes and is written down, and no credential or private address with it.
use crate::origin::{Origin, Roots};
use crate::stand::{SECRET, Stand, ask};
use sallyport_gateway::control::types::Verdict;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Two refusals that are only observed, over rules that allow.
const WATCHED: &str = r#"
version: 1
name: watched
credentials:
  token:
    from: {store: token}
    hosts: [allowed.test]
    in: [bearer]
rules:
  - id: allowed
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET], private: true}
    effect: allow
  - id: admin
    to: {host: allowed.test, port: PORT, path: "/admin/**"}
    effect: deny
    mode: observe
    hint: Ask the operator.
  - id: streams
    to: {host: [opaque.test, 127.0.0.0/8], port: PORT, protocol: tcp, private: true}
    effect: allow
  - id: quiet
    to: {host: opaque.test, port: PORT, protocol: tcp}
    effect: deny
    mode: observe
"#;

/// A whole policy that only observes.
const OPEN: &str = r#"
version: 1
name: open
mode: observe
credentials:
  token:
    from: {store: token}
    hosts: [allowed.test]
    in: [bearer]
rules:
  - id: paste
    to: {host: denied.test, port: PORT}
    effect: deny
"#;

async fn stand(policy: &str) -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(policy);
    (stand, origin)
}

#[tokio::test]
async fn what_would_have_been_refused_passes_with_the_refusal_in_its_record() {
    let (stand, origin) = stand(WATCHED).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    for path in ["/admin/x", "/other"] {
        let (head, _) = ask(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    }
    assert_eq!(origin.seen().len(), 2);
    let records = stand.records(2).await;
    let watched = &records[0];
    assert_eq!(
        (watched.verdict, watched.rule.as_str(), watched.status),
        (Verdict::Observed, "admin", Some(200))
    );
    let refusal = watched.refusal.as_ref().unwrap();
    assert_eq!(refusal.reason.text, watched.reason);
    assert_eq!(refusal.hint.as_deref(), Some("Ask the operator."));
    assert_eq!(
        (records[1].verdict, records[1].rule.as_str()),
        (Verdict::Allowed, "allowed")
    );
}

#[tokio::test]
async fn a_stream_that_would_have_been_refused_passes_and_is_written_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    });
    let stand = Stand::new(&Roots::new(), port).await;
    stand.put(WATCHED);
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    stream.write_all(&[0, 1, 2, 3]).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(20), server).await;
    assert_eq!(received.expect("it was let through").unwrap(), [0, 1, 2, 3]);
    drop(stream);
    for record in stand.records(2).await {
        assert_eq!(
            (record.kind.as_str(), record.verdict, record.rule.as_str()),
            ("tcp", Verdict::Observed, "quiet")
        );
        assert!(record.refusal.is_some());
    }
}

#[tokio::test]
async fn no_credential_goes_out_because_a_refusal_is_only_observed() {
    let (stand, origin) = stand(OPEN).await;
    for host in ["allowed.test", "denied.test"] {
        let at = stand.at(host);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            stand.placeholder
        );
        let answer = stand.raw(host, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("credential `token`"),
            "{host}: {answer}"
        );
        assert!(!answer.contains(SECRET), "{answer}");
    }
    let records = stand.records(2).await;
    assert!(
        records.iter().all(|record| record.verdict == Verdict::Denied),
        "{records:#?}"
    );
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_private_address_stays_refused_where_everything_is_only_observed() {
    let (stand, origin) = stand(OPEN).await;
    let answer = stand.get("other.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("destination_ip_prohibited"),
        "{answer}"
    );
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(record.reason.contains("loopback"), "{}", record.reason);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn what_is_observed_gets_no_refusal_even_where_its_upstream_is_not_there() {
    let (stand, _origin) = stand(OPEN).await;
    let answer = stand.get("nowhere.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("dns_error"),
        "{answer}"
    );
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::UpstreamFailed);
    assert_eq!(
        record.refusal.unwrap().reason.rule,
        "default",
        "learning sees what would have been refused"
    );
}
