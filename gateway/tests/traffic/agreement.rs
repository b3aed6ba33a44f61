//! One name in many spellings, and all pairs of names on one connection (cases Q02, Q04, Q05 and Q06).
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, SECRET, Stand, ask};
use bytes::Bytes;
use http_body_util::Full;
use sallyport_gateway::control::types::Verdict;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

/// Everything below `test` but one name.
const WIDE: &str = r#"
version: 1
name: wide
rules:
  - id: wide
    to: {host: ["*.test", 127.0.0.0/8], port: PORT, methods: [GET], private: true}
    effect: allow
  - id: denied
    to: {host: DENIED.test.}
    effect: deny
"#;

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

/// An origin that notes SNI and Host of what reaches it.
async fn noting(roots: &Roots) -> (Origin, Arc<Mutex<Vec<String>>>) {
    let named: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = named.clone();
    let origin = Origin::raw(roots, &["http/1.1"], move |mut stream| {
        let noting = noting.clone();
        async move {
            let sni = stream.get_ref().1.server_name().map(str::to_owned);
            let head = crate::stand::read_head(&mut stream).await;
            let host = head
                .lines()
                .find_map(|line| line.strip_prefix("host: "))
                .map(str::to_owned);
            noting.lock().unwrap().push(format!(
                "{} {}",
                sni.unwrap_or_default(),
                host.unwrap_or_default()
            ));
            let _written = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                .await;
            let _closed = stream.shutdown().await;
        }
    })
    .await;
    (origin, named)
}

/// Case Q02: CONNECT and Host.
#[tokio::test]
async fn a_name_in_any_spelling_is_the_same_name_and_is_sent_on_in_one() {
    let roots = Roots::new();
    let (origin, named) = noting(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(WIDE);
    let port = stand.port;
    let spellings = ["allowed.test", "ALLOWED.test", "allowed.test.", "Allowed.Test."];
    for spelling in spellings {
        for target in [format!("{spelling}:{port}"), format!("{spelling}:0{port}")] {
            let stream = stand.tunnel(&target).await;
            let mut stream = stand
                .tls_over(stream, Some("allowed.test"), &["http/1.1"])
                .await
                .unwrap();
            let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{target}: {head}");
        }
    }
    let named = named.lock().unwrap().clone();
    assert_eq!(named.len(), 2 * spellings.len());
    assert!(
        named
            .iter()
            .all(|named| *named == format!("allowed.test allowed.test:{port}")),
        "{named:?}"
    );
}

/// Case Q02: CONNECT, absolute-form and Host against a deny under a wider allow.
#[tokio::test]
async fn a_denied_name_is_denied_in_every_spelling() {
    let (stand, origin) = stand().await;
    stand.put(WIDE);
    let port = stand.port;
    for spelling in ["denied.test", "DENIED.test", "denied.test.", "Denied.Test."] {
        for at in [format!("{spelling}:{port}"), format!("{spelling}:0{port}")] {
            let absolute = stand.absolute(&format!("GET http://{at}/"), &at).await;
            let stream = stand.tunnel(&at).await;
            let mut stream = stand.tls_over(stream, Some("denied.test"), &[]).await.unwrap();
            let (head, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
            for answer in [absolute, format!("{head}{body}")] {
                assert!(
                    answer.starts_with("HTTP/1.1 403 ") && answer.contains("\"rule\":\"denied\""),
                    "{at}: {answer}"
                );
            }
        }
    }
    for at in [format!("denied.test..:{port}"), format!(".denied.test:{port}")] {
        let answer = stand.absolute(&format!("GET http://{at}/"), &at).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{at}: {answer}");
        let own = stand.at("allowed.test");
        let answer = stand.absolute(&format!("GET http://{own}/"), &at).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "Host {at}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

/// Case Q04: the target decides where it goes, and `Host` may not say otherwise.
#[tokio::test]
async fn an_absolute_target_and_a_host_that_differ_are_malformed_either_way() {
    let (stand, origin) = stand().await;
    let (api, denied) = (stand.at("api.test"), stand.at("denied.test"));
    for (target, host) in [(&api, &denied), (&denied, &api), (&api, &"api.test".to_owned())] {
        let answer = stand
            .absolute(&format!("GET http://{target}/public/a"), host)
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target} {host}: {answer}");
    }
    assert_eq!(origin.connections(), 0);
}

/// Case Q05: CONNECT, SNI and Host.
#[tokio::test]
async fn only_agreement_of_all_three_names_passes_and_carries_a_credential() {
    let (stand, origin) = stand().await;
    let names = ["allowed.test", "other.test"];
    let mut expected = Vec::new();
    for dialled in names {
        for sni in [Some(names[0]), Some(names[1]), None] {
            for host in [Some(names[0]), Some(names[1]), None] {
                // Without SNI the leaf is for the dialled name, which the client of this test checks as `allowed.test`.
                if sni.is_none() && dialled != "allowed.test" {
                    continue;
                }
                let status = told(&stand, dialled, sni, host).await;
                let right = match (sni, host) {
                    (Some(sni), _) if sni != dialled => "no handshake",
                    (_, None) => "400",
                    (_, Some(host)) if host != dialled => "421",
                    _ if dialled == "allowed.test" => "200",
                    _ => "403",
                };
                assert_eq!(status, right, "CONNECT {dialled}, SNI {sni:?}, Host {host:?}");
                expected.push(right);
            }
        }
    }
    let passed = expected.iter().filter(|right| **right == "200").count();
    let seen = origin.seen();
    assert_eq!((passed, seen.len()), (2, 2));
    assert!(
        seen.iter()
            .all(|head| head.contains(&format!("authorization: Bearer {SECRET}"))),
        "{seen:?}"
    );
    let records = stand.records(expected.len()).await;
    assert_eq!(records.len(), expected.len(), "each leaves one record");
    let misdirected: Vec<_> = records
        .iter()
        .filter(|record| record.status == Some(421))
        .collect();
    assert!(
        misdirected
            .iter()
            .all(|record| record.verdict == Verdict::Malformed
                && record.credentials_used.is_empty()
                && names.iter().all(|name| record.reason.contains(name))),
        "{misdirected:#?}"
    );
}

/// The status of a request with the placeholder, or that there was no handshake.
async fn told(stand: &Stand, dialled: &str, sni: Option<&str>, host: Option<&str>) -> String {
    let stream = stand.tunnel(&stand.at(dialled)).await;
    let Ok(mut stream) = stand.tls_over(stream, sni, &["http/1.1"]).await else {
        return "no handshake".to_owned();
    };
    let host = host.map_or(String::new(), |host| format!("Host: {}\r\n", stand.at(host)));
    let request = format!(
        "GET / HTTP/1.1\r\n{host}Authorization: Bearer {}\r\n\r\n",
        stand.placeholder
    );
    let (head, _) = ask(&mut stream, &request).await;
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Case Q06: the same as HTTP/2 streams of one connection.
#[tokio::test]
async fn each_stream_of_a_connection_is_decided_alone() {
    let (stand, origin) = stand().await;
    let at = stand.at("api.test");
    let sender = stand.h2("api.test").await;
    let asked = |path: &'static str| {
        let (mut sender, at) = (sender.clone(), at.clone());
        async move {
            let request = http::Request::get(format!("https://{at}{path}"))
                .body(Full::<Bytes>::default())
                .unwrap();
            sender.send_request(request).await.unwrap().status().as_u16()
        }
    };
    let statuses = tokio::join!(
        asked("/public/a"),
        asked("/admin/x"),
        asked("/public/../admin/x"),
        asked("/public/b")
    );
    assert_eq!(statuses, (200, 403, 403, 200));
    assert_eq!(origin.seen().len(), 2);
}

/// Case Q06: a binding that comes later.
#[tokio::test]
async fn a_new_binding_works_on_the_open_connection() {
    let (stand, origin) = stand().await;
    let at = stand.at("allowed.test");
    let request = format!(
        "GET /a HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n\r\n",
        stand.placeholder
    );
    let without = POLICY.replacen("    use: [token]\n", "", 1);
    stand.put(&without);
    let mut stream = stand.h1("allowed.test").await;
    let (head, body) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}{body}");
    stand.put(POLICY);
    let (head, body) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
    let seen = origin.seen();
    assert_eq!(seen.len(), 1);
    assert!(
        seen[0].contains(&format!("authorization: Bearer {SECRET}")),
        "{seen:?}"
    );
}
