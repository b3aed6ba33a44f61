//! What rules look at beyond method and path: encoded slashes, fields, pushes (case Q03, npm's scoped names).
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask};

const POLICY: &str = r#"
version: 1
name: fields
rules:
  - id: scoped
    to: {host: [store.test, 127.0.0.0/8], port: PORT, methods: [GET], path: "/{name}", encoded-slash: true, private: true}
    effect: allow
  - id: json
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, headers: {accept: "application/*"}, private: true}
    effect: allow
  - id: push
    to: {host: [api.test, 127.0.0.0/8], port: PORT, protocol: git, repository: "acme/*", access: write, refs: ["agent/**"], private: true}
    effect: allow
"#;

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(POLICY);
    (stand, origin)
}

#[tokio::test]
async fn an_encoded_slash_belongs_to_its_segment_where_a_rule_says_so() {
    let (stand, origin) = stand().await;
    let answer = stand.get("store.test", "/@scope%2fname").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for path in ["/@scope%2f..%2fother", "/@scope%2f%2fname", "/@scope/name"] {
        let answer = stand.get("store.test", path).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
    }
    assert_eq!(
        origin
            .seen()
            .iter()
            .map(|head| head.lines().next().unwrap().to_ascii_lowercase())
            .collect::<Vec<_>>(),
        ["get /@scope%2fname"]
    );
}

#[tokio::test]
async fn a_condition_is_about_the_field_that_is_sent() {
    let (stand, origin) = stand().await;
    let at = stand.at("allowed.test");
    for (fields, status) in [
        ("Accept: application/json\r\n", "200"),
        ("ACCEPT: application/xml\r\n", "200"),
        ("", "403"),
        ("Accept: text/html\r\n", "403"),
        ("Accept: application/json\r\nAccept: application/json\r\n", "403"),
        ("Accept: application/json\r\nConnection: accept\r\n", "403"),
    ] {
        let close = if fields.contains("Connection") {
            ""
        } else {
            "Connection: close\r\n"
        };
        let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n{fields}{close}\r\n");
        let mut stream = stand.h1("allowed.test").await;
        let (head, _) = ask(&mut stream, &request).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{fields}: {head}"
        );
    }
    assert!(
        origin
            .seen()
            .iter()
            .all(|head| head.contains("\naccept: application/")),
        "{:?}",
        origin.seen()
    );
}

#[tokio::test]
async fn a_push_passes_once_it_is_known_that_it_changes_nothing_else() {
    let (stand, origin) = stand().await;
    let asked = stand
        .get("api.test", "/acme/web.git/info/refs?service=git-receive-pack")
        .await;
    assert!(asked.starts_with("HTTP/1.1 200 "), "{asked}");
    let at = stand.at("api.test");
    for (body, status) in [("0000", "200"), ("0032", "403")] {
        let push = format!(
            "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: 4\r\n\r\n{body}"
        );
        let answer = stand.raw("api.test", &push).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert_eq!(origin.seen().len(), 2);
}
