//! The path that is decided is the path that is sent, byte for byte (case Q03).
use crate::origin::{Origin, Roots};
use crate::stand::Stand;

const POLICY: &str = r#"
version: 1
name: paths
rules:
  - id: public
    to: {host: [api.test, 127.0.0.0/8], port: PORT, methods: [GET], path: "/public/**", private: true}
    effect: allow
  - id: admin
    to: {host: api.test, port: PORT, path: "/public/admin/**"}
    effect: deny
"#;

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(POLICY);
    (stand, origin)
}

/// The targets that reached the origin.
fn targets(origin: &Origin) -> Vec<String> {
    let target = |head: &String| head.lines().next().unwrap().to_owned();
    origin.seen().iter().map(target).collect()
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_or_can_be_read_in_two_ways_reaches_no_origin() {
    let (stand, origin) = stand().await;
    for (path, rule) in [
        ("/public/../secret", "default"),
        ("/public/%2e%2e/secret", "default"),
        ("/public/%2E./secret", "default"),
        ("/public//admin/x", "admin"),
        ("/public/%61dmin/x", "admin"),
        ("/public/admin;v=1/x", "admin"),
        ("/public/./admin/x", "admin"),
        ("/public/a/../admin/x", "admin"),
        ("/public%2fadmin/x", "admin"),
        ("/public/%00/x", "admin"),
        ("/%c0%ae%c0%ae/secret", "admin"),
        ("/PUBLIC/admin/x", "default"),
        ("//public/x", "admin"),
        ("/public/admin?/../x", "admin"),
    ] {
        let answer = stand.get("api.test", path).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        assert!(
            answer.contains(&format!("\"rule\":\"{rule}\"")),
            "{path}: {answer}"
        );
    }
    for path in [
        "/public\\admin\\x",
        "/../x",
        "/public/../../x",
        "/public/%2e%2e/%2e%2e/x",
    ] {
        let answer = stand.get("api.test", path).await;
        let status = answer.split(' ').nth(1).unwrap();
        assert!(["400", "403"].contains(&status), "{path}: {answer}");
    }
    assert_eq!(origin.seen(), Vec::<String>::new());
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn what_passes_is_sent_as_it_was_decided() {
    let (stand, origin) = stand().await;
    for path in [
        "/public/a/./b/../c",
        "/public/%7Euser/%61",
        "/public/%252e%252e/secret",
        "/public/a%20b?q=%2e%2e/../&x=/../x",
        "/public/x?/../admin",
        "/public/x#/../admin",
    ] {
        let answer = stand.get("api.test", path).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    assert_eq!(
        targets(&origin),
        [
            "GET /public/a/c",
            "GET /public/~user/a",
            "GET /public/%252e%252e/secret",
            "GET /public/a%20b?q=%2e%2e/../&x=/../x",
            "GET /public/x?/../admin",
            "GET /public/x",
        ]
    );
    let records = stand.records(6).await;
    assert_eq!(
        records[2].path.as_deref(),
        Some("/public/%252e%252e/secret"),
        "decoded once only"
    );
}
