//! A value that an origin echoes in whatever form comes back as its placeholder (case S03); requests on one connection stay apart
//! (case S06); large uploads stream by what is filled in them (case S05).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{SECRET, Stand, read_all};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// RFC 3986 section 2.3.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The forms in which an origin may echo a text. Not covered, as the gateway's `secret/forms.rs` says: base64 broken into lines,
/// encodings on top of each other, UTF-16.
fn forms(text: &str) -> Vec<String> {
    let percent = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    vec![
        text.to_owned(),
        format!("<p title=\"{text}\">{text}</p>"),
        serde_json::json!({"said": text, "n": [text, 1]}).to_string(),
        percent.replace("%5F", "%5f"),
        utf8_percent_encode(text, UNRESERVED).to_string(),
        text.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        text.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        STANDARD.encode(text),
        STANDARD_NO_PAD.encode(format!("a{text}")),
        STANDARD.encode(format!("ab{text}suffix")),
        URL_SAFE.encode(format!("user:{text}")),
        URL_SAFE_NO_PAD.encode(format!("{text}\u{ff}")),
        text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        text.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ]
}

const CODINGS: [&str; 6] = ["", "gzip", "br", "zstd", "deflate", "gzip, br"];

async fn coded(text: Vec<u8>, coding: &str) -> Vec<u8> {
    use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    let mut text = text;
    for coding in coding.split(", ").filter(|coding| !coding.is_empty()) {
        let mut out = Vec::new();
        let read = match coding {
            "gzip" => GzipEncoder::new(&text[..]).read_to_end(&mut out).await,
            "br" => BrotliEncoder::new(&text[..]).read_to_end(&mut out).await,
            "zstd" => ZstdEncoder::new(&text[..]).read_to_end(&mut out).await,
            _ => ZlibEncoder::new(&text[..]).read_to_end(&mut out).await,
        };
        read.unwrap();
        text = out;
    }
    text
}

async fn decoded(text: &[u8], coding: &str) -> Vec<u8> {
    use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
    let mut text = text.to_vec();
    for coding in coding.rsplit(", ").filter(|coding| !coding.is_empty()) {
        let mut out = Vec::new();
        let read = match coding {
            "gzip" => GzipDecoder::new(&text[..]).read_to_end(&mut out).await,
            "br" => BrotliDecoder::new(&text[..]).read_to_end(&mut out).await,
            "zstd" => ZstdDecoder::new(&text[..]).read_to_end(&mut out).await,
            _ => ZlibDecoder::new(&text[..]).read_to_end(&mut out).await,
        };
        read.unwrap();
        text = out;
    }
    text
}

/// Echoes the bearer's token: `/FORM/CODING/SIZE` in that form, coding and size of pieces; elsewhere in a refusal's headers.
async fn echoing(roots: &Roots) -> Origin {
    Origin::http(roots, &["h2"], |request: Request<_>| async move {
        let token = request.headers().get("authorization");
        let token = token
            .map_or("none", |value| value.to_str().unwrap())
            .trim_start_matches("Bearer ")
            .to_owned();
        let wanted: Vec<usize> = request
            .uri()
            .path()
            .split('/')
            .filter_map(|part| part.parse().ok())
            .collect();
        let [form, coding, size] = wanted[..] else {
            return Response::builder()
                .status(401)
                .header("www-authenticate", format!("Bearer realm=\"{token}\""))
                .header("location", format!("/x?t={token}"))
                .header("set-cookie", format!("t={}; Path=/", STANDARD.encode(&token)))
                .body(full("no"))
                .unwrap();
        };
        let text = coded(forms(&token).swap_remove(form).into_bytes(), CODINGS[coding]).await;
        let pieces: Vec<_> = text
            .chunks(size)
            .map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body: Reply = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
        let mut answer = Response::builder();
        if coding > 0 {
            answer = answer.header("content-encoding", CODINGS[coding]);
        }
        answer.body(body).unwrap()
    })
    .await
}

#[tokio::test]
async fn an_echo_in_any_form_and_coding_comes_back_as_the_placeholder_in_that_form() {
    let roots = Roots::new();
    let origin = echoing(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let mut sender = stand.h2("allowed.test").await;
    let ask = |path: String| {
        Request::builder()
            .uri(format!("https://{}{path}", stand.at("allowed.test")))
            .header("authorization", format!("Bearer {}", stand.placeholder))
            .body(Full::<Bytes>::default())
            .unwrap()
    };
    let mut seen = 0;
    for (form, wanted) in forms(&stand.placeholder).iter().enumerate() {
        for (coding, name) in CODINGS.iter().enumerate() {
            for size in [1, 7, 100_000] {
                let answer = sender
                    .send_request(ask(format!("/{form}/{coding}/{size}")))
                    .await
                    .unwrap();
                let (parts, body) = answer.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let said = parts
                    .headers
                    .get("content-encoding")
                    .map_or("", |value| value.to_str().unwrap());
                assert_eq!(said, *name);
                let text = String::from_utf8_lossy(&decoded(&body, name).await).into_owned();
                assert_eq!(&text, wanted, "form {form} in `{name}` by {size}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 14 * 6 * 3);
    let answer = sender.send_request(ask("/".into())).await.unwrap();
    assert_eq!(answer.status(), 401);
    let headers = answer.headers();
    assert_eq!(
        headers["www-authenticate"],
        format!("Bearer realm=\"{}\"", stand.placeholder)
    );
    assert_eq!(headers["location"], format!("/x?t={}", stand.placeholder));
    assert_eq!(
        headers["set-cookie"],
        format!("t={}; Path=/", STANDARD.encode(&stand.placeholder))
    );
    assert!(origin.seen().iter().all(|head| head.contains(SECRET)));
}

/// An origin that answers with path, authorization and length of what it got.
async fn telling(roots: &Roots) -> Origin {
    Origin::http(
        roots,
        &["http/1.1"],
        |request: Request<hyper::body::Incoming>| async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await else {
                return Response::builder().status(400).body(full("torn")).unwrap();
            };
            let real = parts.headers["authorization"] == format!("Bearer {SECRET}");
            let told = format!("[{} {} {}]", parts.uri.path(), real, body.to_bytes().len());
            Response::new(full(told))
        },
    )
    .await
}

#[tokio::test]
async fn requests_in_one_segment_stay_apart_wherever_it_is_cut() {
    let roots = Roots::new();
    let origin = telling(&roots).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let request = |path: &str, body: &str, last: bool| {
        let close = if last { "Connection: close\r\n" } else { "" };
        format!(
            "POST {path} HTTP/1.1\r\nHost: {at}\r\n{close}Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            stand.placeholder,
            body.len()
        )
    };
    let large = "x".repeat(70_000);
    let three = request("/1", "", false) + &request("/2", "12345", false) + &request("/3", &large, true);
    let leaking = request("/1", "", false)
        + &request("/2", &format!("k={SECRET}"), false)
        + &request("/3", "12345", true);
    for (all, wanted) in [
        (&three, &["[/1 true 0]", "[/2 true 5]", "[/3 true 70000]"][..]),
        (&leaking, &["[/1 true 0]", "403 Forbidden", "[/3 true 5]"]),
    ] {
        let heads = all.len().min(700);
        for cut in (1..heads).step_by(9).chain([all.len() - 1]) {
            let mut stream = stand.h1("allowed.test").await;
            let (first, second) = all.as_bytes().split_at(cut);
            stream.write_all(first).await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(second).await.unwrap();
            let answers = read_all(&mut stream).await;
            let mut rest = answers.as_str();
            for wanted in wanted {
                let found = rest
                    .find(wanted)
                    .unwrap_or_else(|| panic!("{wanted} at {cut}: {answers}"));
                rest = &rest[found + wanted.len()..];
            }
            assert!(!answers.contains(SECRET), "{answers}");
        }
    }
}

const FORM: &str = r#"
version: 1
name: test
credentials:
  token: {from: {store: token}, hosts: [allowed.test], in: ["form:token"], env: TOKEN}
rules:
  - {id: allowed, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, private: true}, use: [token], effect: allow}
"#;

#[tokio::test]
async fn a_large_upload_streams_by_the_field_that_is_filled() {
    const PIECE: usize = 256 * 1024;
    const PIECES: usize = 200;
    let roots = Roots::new();
    let got: Arc<Mutex<(usize, Vec<u8>, String)>> = Arc::default();
    let noting = got.clone();
    let origin = Origin::http(
        &roots,
        &["http/1.1"],
        move |request: Request<hyper::body::Incoming>| {
            let noting = noting.clone();
            async move {
                let length = request.headers().get("content-length").cloned();
                let (mut body, mut count, mut last) = (request.into_body(), 0, Vec::new());
                while let Some(Ok(frame)) = body.frame().await {
                    let piece = frame.into_data().unwrap_or_default();
                    count += piece.len();
                    last.extend_from_slice(&piece);
                    let over = last.len().saturating_sub(400);
                    last.drain(..over);
                }
                let length = length.map_or(String::new(), |value| value.to_str().unwrap().to_owned());
                *noting.lock().unwrap() = (count, last, length);
                Response::new(full("done"))
            }
        },
    )
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(FORM);
    let head = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
    let field = format!(
        "\r\n--XX\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n{}\r\n--XX--\r\n",
        stand.placeholder
    );
    // Bytes without a pattern, with line ends and dashes among them.
    let noise: Bytes = (0..PIECE)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect::<Vec<u8>>()
        .into();
    let length = head.len() + PIECE * PIECES + field.len();
    let pieces = std::iter::once(Bytes::from(head.to_owned()))
        .chain(std::iter::repeat_n(noise, PIECES))
        .chain([Bytes::from(field.clone())])
        .map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let stream = stand
        .tls(&stand.at("allowed.test"), "allowed.test", &["h2"])
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method("POST")
        .uri(format!("https://{}/upload", stand.at("allowed.test")))
        .header("content-type", "multipart/form-data; boundary=XX")
        .header("content-length", length)
        .body(StreamBody::new(futures_util::stream::iter(pieces)))
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let (count, last, said) = got.lock().unwrap().clone();
    assert_eq!((count, said), (length, length.to_string()));
    let last = String::from_utf8_lossy(&last).into_owned();
    assert!(
        last.ends_with(&field.replace(&stand.placeholder, SECRET)),
        "{last}"
    );
}
