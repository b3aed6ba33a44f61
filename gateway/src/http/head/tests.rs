//! Heads that agree with the dialled destination, and all the ways not to.
use super::*;
use http::Request;

fn dialled(text: &str) -> Destination {
    parse_authority(text, None).unwrap()
}

fn parts(target: &str, version: Version, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(target).version(version);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn status(target: &str, headers: &[(&str, &str)]) -> u16 {
    match read(
        &parts(target, Version::HTTP_11, headers),
        &dialled("allowed.test:443"),
        true,
    ) {
        Ok(_) => 200,
        Err(fault) => fault.status().as_u16(),
    }
}

#[test]
fn the_dialled_name_passes_in_any_spelling() {
    for host in [
        "allowed.test",
        "ALLOWED.test",
        "allowed.test.",
        "allowed.test:443",
        "allowed.test:0443",
    ] {
        assert_eq!(status("/a", &[("host", host)]), 200, "{host}");
    }
}

#[test]
fn a_foreign_host_is_misdirected() {
    for host in [
        "other.test",
        "allowed.test:8443",
        "evil-allowed.test",
        "allowed.test.other.test",
        "127.0.0.1",
    ] {
        assert_eq!(status("/a", &[("host", host)]), 421, "{host}");
    }
    assert_eq!(status("https://other.test/a", &[("host", "allowed.test")]), 421);
    assert_eq!(status("https://allowed.test/a", &[("host", "other.test")]), 421);
}

#[test]
fn hosts_that_are_none_are_malformed() {
    for host in [
        "",
        "allowed.test, other.test",
        "allowed.test..",
        "user@allowed.test",
        "allowed.test:x",
        "allowed.test:0",
        "allowed.test:65979",
        "[::1",
        "a b",
    ] {
        assert_eq!(status("/a", &[("host", host)]), 400, "{host}");
    }
    assert_eq!(status("/a", &[]), 400);
    assert_eq!(
        status("/a", &[("host", "allowed.test"), ("host", "allowed.test")]),
        400
    );
}

#[test]
fn http2_authority_and_host_must_agree_with_each_other_and_the_connection() {
    let check = |target: &str, host: Option<&str>| {
        let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
        read(
            &parts(target, Version::HTTP_2, &headers),
            &dialled("allowed.test:443"),
            true,
        )
        .is_ok()
    };
    assert!(check("https://allowed.test/", None));
    assert!(check("https://allowed.test/", Some("allowed.test")));
    assert!(!check("https://allowed.test/", Some("other.test")));
    assert!(!check("https://other.test/", Some("allowed.test")));
    assert!(!check("http://allowed.test/", None));
    assert!(!check("/", None));
}

#[test]
fn framing_that_two_readers_read_differently_is_refused() {
    let host = ("host", "allowed.test");
    assert_eq!(status("/a", &[host, ("transfer-encoding", "chunked")]), 200);
    assert_eq!(status("/a", &[host, ("transfer-encoding", "chunked\t")]), 200);
    assert_eq!(
        status(
            "/a",
            &[host, ("transfer-encoding", "chunked"), ("content-length", "4")]
        ),
        400
    );
    assert_eq!(
        status(
            "/a",
            &[
                host,
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "chunked")
            ]
        ),
        400
    );
    for coding in ["gzip, chunked", "xchunked", "identity", "chunked, identity"] {
        assert_eq!(
            status("/a", &[host, ("transfer-encoding", coding)]),
            501,
            "{coding}"
        );
    }
}

#[test]
fn targets_without_a_path_are_not_forwarded() {
    let star = Request::builder()
        .method("OPTIONS")
        .uri("*")
        .header("host", "allowed.test")
        .body(())
        .unwrap();
    assert!(read(&star.into_parts().0, &dialled("allowed.test:443"), true).is_err());
    let connect = Request::builder()
        .method("CONNECT")
        .uri("allowed.test:443")
        .body(())
        .unwrap();
    assert!(read(&connect.into_parts().0, &dialled("allowed.test:443"), true).is_err());
}

#[test]
fn plain_http_has_port_80_by_default() {
    let head = parts(
        "http://allowed.test/a?b=c",
        Version::HTTP_11,
        &[("host", "allowed.test")],
    );
    let read = read(&head, &dialled("allowed.test:80"), false).unwrap();
    assert_eq!(
        (read.path.as_str(), read.query.as_deref(), read.tls),
        ("/a", Some("b=c"), false)
    );
}

#[test]
fn authorities_are_read_whole_or_not_at_all() {
    assert_eq!(parse_authority("[::1]:443", None).unwrap().port, 443);
    assert_eq!(
        parse_authority("[::ffff:8.8.8.8]:443", None).unwrap(),
        dialled("8.8.8.8:443")
    );
    for text in [
        "::1:443",
        "[::1]443",
        "[::1",
        "a:b:c",
        "",
        ":443",
        "allowed.test",
        "allowed.test:",
        "allowed.test:+1",
    ] {
        assert!(parse_authority(text, None).is_err(), "{text}");
    }
}

#[test]
fn a_policy_sees_every_field_but_credentials_the_hop_and_the_host() {
    let (parts, ()) = Request::builder()
        .header("Accept", "text/html")
        .header("accept", "a/b")
        .header("x-odd", HeaderValue::from_bytes(b"caf\xe9").unwrap())
        .header("host", "allowed.test")
        .header("authorization", "Bearer x")
        .header("cookie", "a=1")
        .header("proxy-authorization", "Basic x")
        .header("te", "trailers")
        .body(())
        .unwrap()
        .into_parts();
    let mut seen = fields(&parts.headers);
    seen.sort();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        seen,
        [
            pair("accept", "a/b"),
            pair("accept", "text/html"),
            pair("x-odd", "caf\u{e9}")
        ]
    );
}
