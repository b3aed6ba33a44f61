//! Credentials in the places of bodies and paths, and nowhere else (cases S02, S05).
use crate::origin::{Got, Origin, Roots, taking};
use crate::stand::{SECRET, Stand};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::Request;
use http::request::Parts;
use http_body_util::{BodyExt, Full};
use std::io::Read as _;

const POLICY: &str = r#"
version: 1
name: test
credentials:
  token:
    from: {store: token}
    hosts: [allowed.test]
    in: [bearer, "json:/auth/token", "form:token", path]
    env: TOKEN
rules:
  - id: allowed
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, private: true}
    use: [token]
    effect: allow
  - id: store
    to: {host: [store.test, 127.0.0.0/8], port: PORT, private: true}
    effect: allow
"#;

async fn stand(alpn: &[&str]) -> (Stand, Origin, Got) {
    let roots = Roots::new();
    let (origin, got) = taking(&roots, alpn).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(POLICY);
    (stand, origin, got)
}

/// Sends a body and gives status, answer, and what came of it upstream.
async fn post(
    (stand, got): (&Stand, &Got),
    host: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> (u16, String, Option<(Parts, Bytes)>) {
    let mut request = Request::builder()
        .method("POST")
        .uri(format!("https://{}/in", stand.at(host)));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let mut sender = stand.h2(host).await;
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        parts.status.as_u16(),
        String::from_utf8(body.to_vec()).unwrap(),
        got.lock().unwrap().pop(),
    )
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_credential_is_put_into_each_kind_of_body_and_keeps_its_length() {
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let (stand, _origin, got) = stand(alpn).await;
        let multipart = "--XX\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nPH\r\n--XX--\r\n";
        for (kind, body) in [
            (
                "application/json; charset=utf-8",
                "{\"auth\": {\"token\": \"PH\"}, \"said\": \"PH\"}",
            ),
            ("application/vnd.x+json", "{\"auth\": {\"token\": \"PH\"}}"),
            ("application/x-www-form-urlencoded", "grant=x&token=PH&y=1"),
            ("multipart/form-data; boundary=XX", multipart),
        ] {
            let sent = body.replace("PH", &stand.placeholder);
            let (status, text, arrived) = post(
                (&stand, &got),
                "allowed.test",
                &[("content-type", kind)],
                sent.clone(),
            )
            .await;
            let (parts, bytes) = arrived.unwrap();
            assert_eq!((status, text.as_str()), (200, "done"));
            let wanted = body.replacen("PH", SECRET, 1).replace("PH", &stand.placeholder);
            assert_eq!(bytes, wanted, "{kind}");
            assert_eq!(parts.headers["content-length"], wanted.len().to_string());
        }
        let records = stand.records(4).await;
        assert!(
            records.iter().all(|record| record.credentials_used == ["token"]),
            "{records:#?}"
        );
        assert!(!format!("{records:?}").contains(SECRET));
    }
}

#[tokio::test]
async fn a_coded_body_is_filled_and_coded_again_and_an_unknown_coding_is_415() {
    let (stand, _origin, got) = stand(&["http/1.1"]).await;
    let json = "{\"auth\": {\"token\": \"PH\"}}";
    let headers = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("content-md5", "x"),
    ];
    let sent = gzip(&json.replace("PH", &stand.placeholder));
    let (status, _, arrived) = post((&stand, &got), "allowed.test", &headers, sent.clone()).await;
    let (parts, bytes) = arrived.unwrap();
    let mut text = String::new();
    GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    assert_eq!((status, text), (200, json.replace("PH", SECRET)));
    assert_eq!(parts.headers["content-encoding"], "gzip");
    assert!(!parts.headers.contains_key("content-md5"));
    let odd = [("content-type", "application/json"), ("content-encoding", "foo")];
    let (status, text, arrived) = post((&stand, &got), "allowed.test", &odd, sent.clone()).await;
    assert_eq!((status, arrived.is_none()), (415, true), "{text}");
    assert!(text.contains("`foo`"), "{text}");
    let broken = post((&stand, &got), "allowed.test", &headers, "no gzip").await;
    assert_eq!((broken.0, broken.2.is_none()), (403, true), "{}", broken.1);
    // Where no credential could be put in, nothing is touched.
    let other = [
        ("content-type", "application/octet-stream"),
        ("content-encoding", "foo"),
    ];
    for (host, headers) in [("store.test", &odd), ("allowed.test", &other)] {
        let (status, _, arrived) = post((&stand, &got), host, headers, sent.clone()).await;
        let (parts, bytes) = arrived.unwrap();
        assert_eq!((status, &bytes[..]), (200, &sent[..]));
        assert_eq!(parts.headers["content-encoding"], "foo");
    }
}

#[tokio::test]
async fn a_body_that_turns_out_wrong_never_ends_upstream() {
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let (stand, _origin, got) = stand(alpn).await;
        let json = [("content-type", "application/json")];
        let both = [
            ("content-type", "application/json"),
            ("authorization", "Bearer PH"),
        ];
        let both = both.map(|(name, value)| (name, value.replace("PH", &stand.placeholder)));
        let both: Vec<(&str, &str)> = both.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for (headers, body) in [
            (&json[..], "{\"auth\": {\"token\": \"PH\"}, oops"),
            (&json[..], "{\"auth\": {\"token\": \"PH\"}"),
            (&json[..], "{\"auth\": {\"token\": \"PH\", \"token\": \"x\"}}"),
            (&both[..], "{\"auth\": {\"token\": \"PH\"}}"),
        ] {
            let body = body.replace("PH", &stand.placeholder);
            let (status, text, arrived) = post((&stand, &got), "allowed.test", headers, body).await;
            assert_eq!((status, arrived.is_none()), (403, true), "{text}");
            assert!(text.contains("`token`") && !text.contains(SECRET), "{text}");
        }
    }
}

#[tokio::test]
async fn a_segment_of_the_path_is_replaced_and_the_record_has_the_placeholder() {
    let (stand, origin, _) = stand(&["http/1.1"]).await;
    let path = format!("/hooks/{}/x?y={}", stand.placeholder, stand.placeholder);
    let answer = stand.get("allowed.test", &path).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = origin.seen();
    assert!(
        seen[0].starts_with(
            &format!("GET /hooks/{SECRET}/x?y={} ", stand.placeholder)
                .trim_end()
                .to_owned()
        ),
        "{seen:?}"
    );
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        record.path.as_deref(),
        Some(format!("/hooks/{}/x", stand.placeholder).as_str())
    );
    assert_eq!(record.credentials_used, ["token"]);
    for path in ["/x-PH/", "/PH"] {
        let host = if path == "/PH" {
            "store.test"
        } else {
            "allowed.test"
        };
        let answer = stand.get(host, &path.replace("PH", &stand.placeholder)).await;
        let refused = host == "store.test";
        assert_eq!(answer.starts_with("HTTP/1.1 403 "), refused, "{answer}");
    }
    assert!(origin.seen().iter().skip(1).all(|head| !head.contains(SECRET)));
}
