//! A credential goes out where it may, and comes back only as its placeholder (cases S06, S07).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{SECRET, Stand, ask};
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use sallyport_gateway::control::types::Verdict;
use tokio::io::AsyncWriteExt;

/// Echoes `authorization` in a header, in the body cut into pieces of three bytes, and in a trailer.
async fn leaky(roots: &Roots, alpn: &[&str]) -> Origin {
    Origin::http(roots, alpn, |request| async move {
        let value = request
            .headers()
            .get("authorization")
            .cloned()
            .unwrap_or(http::HeaderValue::from_static("none"));
        let text = format!("you sent: {}\n", value.to_str().unwrap());
        let mut frames: Vec<Result<http_body::Frame<Bytes>, std::io::Error>> = text
            .as_bytes()
            .chunks(3)
            .map(|piece| Ok(http_body::Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-echo", value.clone());
        frames.push(Ok(http_body::Frame::trailers(trailers)));
        let body: Reply = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        Response::builder()
            .header("x-echo", value)
            .header("trailer", "x-echo")
            .body(body)
            .unwrap()
    })
    .await
}

async fn stand(alpn: &[&str]) -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = leaky(&roots, alpn).await;
    (Stand::new(&roots, origin.port).await, origin)
}

#[tokio::test]
async fn an_echoed_token_comes_back_as_the_placeholder_over_every_pair_of_versions() {
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let (stand, origin) = stand(alpn).await;
        let at = stand.at("allowed.test");
        let answer = stand
            .raw(
                "allowed.test",
                &format!("GET /1 HTTP/1.1\r\nHost: {at}\r\nTE: trailers\r\nConnection: close, te\r\nAuthorization: Bearer {}\r\n\r\n", stand.placeholder),
            )
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains(SECRET), "{answer}");
        assert_eq!(
            answer
                .matches(&format!("x-echo: Bearer {}", stand.placeholder))
                .count(),
            2,
            "header and trailer: {answer}"
        );
        let mut sender = stand.h2("allowed.test").await;
        let request = http::Request::builder()
            .uri(format!("https://{at}/2"))
            .header("authorization", format!("Bearer {}", stand.placeholder))
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(
            response.headers()["x-echo"],
            format!("Bearer {}", stand.placeholder)
        );
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(
            body.to_bytes(),
            format!("you sent: Bearer {}\n", stand.placeholder)
        );
        assert!(
            origin
                .seen()
                .iter()
                .all(|head| head.contains(&format!("Bearer {SECRET}"))),
            "the origin got the value"
        );
        let records = stand.records(2).await;
        assert!(
            records.iter().all(|record| record.credentials_used == ["token"]),
            "{records:#?}"
        );
        assert!(
            records
                .iter()
                .all(|record| record.credentials_redacted == ["token"]),
            "{records:#?}"
        );
        assert!(!format!("{records:?}").contains(SECRET));
    }
}

#[tokio::test]
async fn a_placeholder_for_another_host_is_refused_and_named() {
    let (stand, origin) = stand(&["http/1.1"]).await;
    let at = stand.at("store.test");
    let answer = stand
        .raw(
            "store.test",
            &format!(
                "GET /o HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
                stand.placeholder
            ),
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("token"),
        "{answer}"
    );
    assert!(origin.seen().is_empty());
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(record.verdict, Verdict::Denied);
    assert!(record.reason.contains("token"), "{}", record.reason);
}

#[tokio::test]
async fn a_real_value_in_a_body_never_reaches_the_origin() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |request| async move {
        match request.into_body().collect().await {
            Ok(body) => Response::new(full(body.to_bytes())),
            Err(_) => Response::builder().status(400).body(full("torn")).unwrap(),
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let body = format!("{}token={SECRET}", "x".repeat(5000));
    let answer = stand
        .raw(
            "allowed.test",
            &format!(
                "POST /log HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("token"),
        "{answer}"
    );
    assert!(!answer.contains(SECRET));
}

#[tokio::test]
async fn a_placeholder_in_a_body_passes_unchanged() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let body = format!("history: {}", stand.placeholder);
    let mut stream = stand.h1("allowed.test").await;
    let (head, echoed) = ask(
        &mut stream,
        &format!(
            "POST /echo HTTP/1.1\r\nHost: {at}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(echoed, body);
}

#[tokio::test]
async fn plain_http_never_gets_the_value() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = crate::stand::read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        head
    });
    let stand = Stand::new(&Roots::new(), port).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.tunnel(&at).await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n\r\n",
        stand.placeholder
    );
    let (head, body) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}{body}");
    origin.abort();
}

#[tokio::test]
async fn an_answer_that_cannot_be_looked_into_is_not_let_through() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["h2"], |_| async move {
        Response::builder()
            .header("content-encoding", "compress")
            .body(full("???"))
            .unwrap()
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let answer = stand.get("allowed.test", "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("http_response_content_coding"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_coded_answer_comes_back_coded_and_clean() {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |request| async move {
        use tokio::io::AsyncReadExt;
        let text = format!("{}{:?}", "x".repeat(3000), request.headers().get("authorization"));
        let mut coder = async_compression::tokio::bufread::GzipEncoder::new(text.as_bytes());
        let mut coded = Vec::new();
        coder.read_to_end(&mut coded).await.unwrap();
        Response::builder()
            .header("content-encoding", "gzip")
            .header("content-length", coded.len())
            .body(full(coded))
            .unwrap()
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let output = tokio::process::Command::new("curl")
        .args([
            "-sS",
            "--compressed",
            "--noproxy",
            "",
            "-x",
            &format!("http://run-1:{}@{}", stand.token, stand.proxy),
        ])
        .args([
            "-H",
            &format!("Authorization: Bearer {}", stand.placeholder),
            "--cacert",
        ])
        .arg(&ca)
        .arg(format!("https://{}/", stand.at("allowed.test")))
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(&stand.placeholder) && !text.contains(SECRET),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
