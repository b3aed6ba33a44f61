//! What is taken off heads, and what is not.
use super::*;
use http::Request;
use sallyport_policy::CanonicalPath;

fn decided(path: &str, query: Option<&str>) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        path: CanonicalPath::parse(path).unwrap(),
        query: query.map(str::to_owned),
        tls: true,
        headers: Vec::new(),
        pushed: None,
    }
}

#[test]
fn fields_of_the_hop_are_taken_off_with_those_that_connection_lists() {
    let (mut parts, ()) = Request::builder()
        .uri("/a")
        .header("connection", "keep-alive, x-hop, host, authorization")
        .header("x-hop", "1")
        .header("keep-alive", "timeout=5")
        .header("proxy-authorization", "Basic secret")
        .header("upgrade", "h2c")
        .header("transfer-encoding", "chunked")
        .header("host", "allowed.test")
        .header("authorization", "Bearer kept")
        .header("accept", "*/*")
        .body(())
        .unwrap()
        .into_parts();
    canonical_fields(&mut parts.headers).unwrap();
    let mut names: Vec<_> = parts.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "authorization", "host"]);
}

#[test]
fn what_is_decided_is_what_is_sent() {
    let (mut parts, ()) = Request::builder()
        .uri("/a/../b?x=%41")
        .body(())
        .unwrap()
        .into_parts();
    decided_target(&mut parts, &decided("/a/../b", Some("x=%41"))).unwrap();
    assert_eq!(parts.uri.to_string(), "/b?x=%41");
}

#[test]
fn cookie_crumbs_become_one_field() {
    let (mut parts, ()) = Request::builder()
        .uri("/")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())
        .unwrap()
        .into_parts();
    canonical_fields(&mut parts.headers).unwrap();
    assert_eq!(
        parts.headers.get_all("cookie").iter().collect::<Vec<_>>(),
        ["a=1; b=2"]
    );
}

#[test]
fn only_the_wish_for_trailers_survives() {
    let (mut parts, ()) = Request::builder()
        .uri("/")
        .header("te", "gzip, trailers")
        .body(())
        .unwrap()
        .into_parts();
    canonical_fields(&mut parts.headers).unwrap();
    assert_eq!(parts.headers["te"], "trailers");
}

#[test]
fn invitations_to_other_ways_are_taken_off_answers() {
    let mut headers = HeaderMap::new();
    headers.insert("alt-svc", HeaderValue::from_static("h3=\":443\""));
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    strip_answer(&mut headers);
    assert_eq!(headers.len(), 1);
}

#[test]
fn codings_that_cannot_be_looked_into_are_not_asked_for() {
    for (asked, sent) in [
        ("gzip, deflate, br, zstd", "gzip, deflate, br, zstd"),
        ("gzip;q=0.5, dcb, *", "gzip;q=0.5"),
        ("compress", "identity"),
        ("", ""),
    ] {
        let (mut parts, ()) = Request::builder()
            .uri("/")
            .header("accept-encoding", asked)
            .body(())
            .unwrap()
            .into_parts();
        canonical_fields(&mut parts.headers).unwrap();
        assert_eq!(parts.headers["accept-encoding"], sent);
    }
}
