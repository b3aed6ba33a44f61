//! A grant lets exactly that pass which was granted, exactly as long (case Q13).
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY as POLICY_OF_STAND, SECRET, Stand, authorization, read_all, read_head};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::control::types::{AccessAnswer, AccessRequest};
use sallyport_policy::{Grant, Wanted};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const POLICY: &str = r#"
version: 1
name: granted
rules:
  - id: person
    to: {host: [docs.test, "*.docs.test", 127.0.0.0/8], port: "1-65535", methods: [GET, POST], private: true}
    effect: deny
    grantable: {by: person, expires: 1h}
  - id: streams
    to: {host: [opaque.test, 127.0.0.0/8], port: PORT, protocol: tcp, private: true}
    effect: deny
    grantable: {by: person, expires: 1h}
"#;

fn grant(stand: &Stand, rule: &str, host: &str, seconds: i64) -> Grant {
    let http = rule == "person";
    Grant {
        credential: None,
        id: String::new(),
        rule: rule.to_owned(),
        host: host.to_owned(),
        port: stand.port,
        methods: if http { vec!["GET".to_owned()] } else { Vec::new() },
        path: http.then(|| "/a/**".to_owned()),
        uses: None,
        expires_at: jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds),
        by: "ada".to_owned(),
    }
}

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(POLICY);
    (stand, origin)
}

#[tokio::test]
async fn only_the_granted_method_path_port_and_name_pass_and_only_for_that_run() {
    let (stand, origin) = stand().await;
    assert!(stand.get("docs.test", "/a/x").await.starts_with("HTTP/1.1 403 "));
    let given = grant(&stand, "person", "docs.test", 60);
    stand.sessions.grant("run-1", given).await.unwrap();
    let answer = stand.get("docs.test", "/a/x").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let at = stand.at("docs.test");
    let post = format!("POST /a/x HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    for (what, answer) in [
        ("another method", stand.raw("docs.test", &post).await),
        ("another path", stand.get("docs.test", "/b").await),
        ("a path that leads out", stand.get("docs.test", "/a/../b").await),
        (
            "a path in two readings",
            stand.get("docs.test", "/a/%2e%2e%2fb").await,
        ),
        (
            "another port",
            stand
                .absolute("GET http://docs.test:8443/a/x", "docs.test:8443")
                .await,
        ),
        ("a name below", stand.get("x.docs.test", "/a/x").await),
    ] {
        assert!(answer.starts_with("HTTP/1.1 403 "), "{what}: {answer}");
    }
    stand.put_for("run-2", POLICY);
    let token = stand.sessions.view("run-2", "").unwrap().proxy_token;
    let mut stream = stand.dial().await;
    let request = format!(
        "GET http://{at}/a/x HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nProxy-Authorization: {}\r\n\r\n",
        authorization("run-2", &token)
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "another run: {answer}");
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_grant_and_nothing_new_begins() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let _ended = stream.read_to_end(&mut bytes).await;
        bytes
    });
    let stand = Stand::new(&Roots::new(), port).await;
    stand.put(POLICY);
    let given = grant(&stand, "streams", "opaque.test", 2);
    let ends = given.expires_at;
    stand.sessions.grant("run-1", given).await.unwrap();
    let mut stream = stand.tunnel(&stand.at("opaque.test")).await;
    stream.write_all(&[0, 1, 2]).await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    let after = jiff::Timestamp::now().duration_since(ends);
    assert!(
        (jiff::SignedDuration::ZERO..jiff::SignedDuration::from_secs(5)).contains(&after),
        "ended {after:?} after the grant"
    );
    assert_eq!(server.await.unwrap(), [0, 1, 2]);
    let records = stand.records(3).await;
    assert_eq!(records.last().unwrap().ending, "the grant ended");
    let mut again = stand.tunnel(&stand.at("opaque.test")).await;
    again.write_all(&[0, 1, 2]).await.unwrap();
    assert_eq!(read_all(&mut again).await, "");
    let record = stand.records(4).await.pop().unwrap();
    assert_eq!(
        (record.verdict, record.rule.as_str()),
        (Verdict::Denied, "streams")
    );
}

#[tokio::test]
async fn a_request_after_the_grant_is_refused_on_the_connection_that_is_open() {
    let (stand, origin) = stand().await;
    let given = grant(&stand, "person", "docs.test", 2);
    stand.sessions.grant("run-1", given).await.unwrap();
    let at = stand.at("docs.test");
    let mut stream = stand.h1("docs.test").await;
    let request = format!("GET /a/x HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let mut passed = 0;
    loop {
        let (head, body) = crate::stand::ask(&mut stream, &request).await;
        if head.starts_with("HTTP/1.1 403 ") {
            assert!(body.contains("\"rule\":\"person\""), "{body}");
            break;
        }
        passed += 1;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(tokio::time::Instant::now() < deadline, "the grant does not end");
    }
    assert!(passed > 0);
    assert_eq!(origin.seen().len(), passed);
    let mut head = String::new();
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the connection is still open");
    head.push_str(&read_head(&mut stream).await);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[tokio::test]
async fn a_credential_that_must_be_asked_for_is_refused_until_it_is_lent() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let text = POLICY_OF_STAND.replace(
        "env: TOKEN",
        "env: TOKEN\n    for: pushes\n    grantable: {by: rule, expires: 1h}",
    );
    assert_ne!(text, POLICY_OF_STAND);
    stand.put(&text);
    let at = stand.at("allowed.test");
    let request = format!(
        "GET /x HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        stand.placeholder
    );
    let refused = stand.raw("allowed.test", &request).await;
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(
        refused.contains("sallyport-shim secret request token --for allowed.test"),
        "{refused}"
    );
    assert!(origin.seen().is_empty());
    let wish = |host: &str| AccessRequest {
        wanted: Wanted {
            host: host.into(),
            port: 443,
            method: None,
            path: None,
            credential: Some("token".into()),
        },
        why: "to push".into(),
    };
    let elsewhere = stand.sessions.access("run-1", &wish("store.test")).await.unwrap();
    assert!(matches!(elsewhere, AccessAnswer::Refused { .. }), "{elsewhere:?}");
    let lent = stand
        .sessions
        .access("run-1", &wish("allowed.test"))
        .await
        .unwrap();
    assert!(matches!(lent, AccessAnswer::Granted { .. }), "{lent:?}");
    let view = stand.sessions.view("run-1", "").unwrap();
    let known = &view.credentials[0];
    assert_eq!(
        (known.purpose.as_deref(), known.lent_at.join(",").as_str()),
        (Some("pushes"), "allowed.test")
    );
    assert_eq!(known.placeholder, stand.placeholder, "it stays the same");
    let answer = stand.raw("allowed.test", &request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(origin.seen()[0].contains(SECRET));
    let told = stand.records_until(2, |record| record.kind == "access").await;
    assert_eq!(told[0].verdict, Verdict::Denied);
    assert!(
        told[1]
            .reason
            .starts_with("credential `token`: granted by `policy`"),
        "{:?}",
        told[1].reason
    );
    assert!(
        told[1].reason.ends_with("the agent wrote: to push"),
        "{:?}",
        told[1].reason
    );
}
