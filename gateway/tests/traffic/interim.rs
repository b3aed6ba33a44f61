//! Interim answers and final ones that come early, and whose error an error is (case P07).
use crate::origin::{Origin, Roots, full};
use crate::stand::{SECRET, Stand, ask, read_head};
use http::Response;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn interim_answers_pass_in_order_and_cleaned() {
    let roots = Roots::new();
    let origin = Origin::raw(&roots, &["http/1.1"], |mut stream| async move {
        loop {
            if read_head(&mut stream).await.is_empty() {
                return;
            }
            let text = format!(
                "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Echo: {SECRET}\r\nConnection: x\r\n\r\n\
                 HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    for _ in 0..3 {
        let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let hints = read_head(&mut stream).await;
        assert!(
            hints.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a.css>"),
            "{hints}"
        );
        assert!(
            hints.contains(&stand.placeholder) && !hints.contains("connection"),
            "{hints}"
        );
        for _ in 0..2 {
            assert_eq!(read_head(&mut stream).await, "HTTP/1.1 102 Processing\r\n\r\n");
        }
        let (head, body) = ask(&mut stream, "").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "ok", "{head}");
    }
    let old = stand
        .raw("allowed.test", &format!("GET / HTTP/1.0\r\nHost: {at}\r\n\r\n"))
        .await;
    assert!(!old.contains("103") && old.ends_with("ok"), "{old}");
}

#[tokio::test]
async fn what_waits_for_a_word_and_is_refused_hears_no_other() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("docs.test");
    let mut stream = stand.h1("docs.test").await;
    let request = format!(
        "PUT /x HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n"
    );
    let (head, _) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_an_upload_is_read_whole() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("docs.test");
    for framing in ["Content-Length: 8000000", "Transfer-Encoding: chunked"] {
        let mut stream = stand.h1("docs.test").await;
        let head = format!("PUT /x HTTP/1.1\r\nHost: {at}\r\n{framing}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // The whole upload is written before anything is read: nothing may be reset meanwhile.
        let piece = vec![b'x'; 80_000];
        for _ in 0..100 {
            if framing.starts_with('T') {
                stream.write_all(b"13880\r\n").await.unwrap();
            }
            stream.write_all(&piece).await.unwrap();
            if framing.starts_with('T') {
                stream.write_all(b"\r\n").await.unwrap();
            }
        }
        if framing.starts_with('T') {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let (head, body) = ask(&mut stream, "").await;
        assert!(
            head.starts_with("HTTP/1.1 403 ") && body.contains("decision"),
            "{framing}: {head}{body}"
        );
    }
}

#[tokio::test]
async fn an_upstreams_own_error_is_told_apart_from_ours() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |request| async move {
        let answer = Response::builder().header("x-sallyport-decision", "forged");
        match request.uri().path() {
            "/fine" => answer.body(full("ok")),
            _ => answer
                .status(403)
                .header("proxy-status", "cdn; error=http_request_denied")
                .body(full("theirs")),
        }
        .unwrap()
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let theirs = stand.get("allowed.test", "/").await;
    let (cdn, own) = (
        theirs.find("cdn; error=http_request_denied"),
        theirs.find("sallyport; received-status=403"),
    );
    assert!(
        cdn.is_some() && cdn < own && !theirs.contains("x-sallyport-decision"),
        "{theirs}"
    );
    let fine = stand.get("allowed.test", "/fine").await;
    assert!(
        !fine.contains("proxy-status") && !fine.contains("forged"),
        "{fine}"
    );
    let ours = stand.get("docs.test", "/").await;
    assert!(
        ours.contains("sallyport; error=http_request_denied") && !ours.contains("received-status"),
        "{ours}"
    );
}
