//! A policy exchanged under running traffic: what goes on, what is refused, what works anew (cases Q06 and Q11).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{POLICY, SECRET, Stand, ask, read_head};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use sallyport_gateway::control::types::{PolicyKey, Publication, Rollback, Verdict};
use sallyport_gateway::standing::{Kept, Standing};
use sallyport_policy::{Layer, PolicyText};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// A ceiling over one host at the origin.
const CEILING: &str = r#"
version: 1
name: ceiling
widen: {credentials: [run]}
rules:
  - id: ceiling
    to: {host: [HOST, 127.0.0.0/8], port: PORT, methods: [GET, HEAD, POST, PUT], path: "/**", private: true}
    effect: allow
"#;

async fn standing(stand: &Stand) -> Arc<Standing> {
    let kept = Kept::open(stand.folder.path()).unwrap();
    let metrics = stand.gateway.metrics().clone();
    Standing::start(kept, stand.sessions.clone(), stand.sink.clone(), metrics)
        .await
        .unwrap()
}

fn organisation() -> PolicyKey {
    PolicyKey::new(Layer::Organisation, "").unwrap()
}

async fn publish(stand: &Stand, standing: &Arc<Standing>, host: &str) {
    let text = CEILING
        .replace("HOST", host)
        .replace("PORT", &stand.port.to_string());
    let publication = Publication {
        texts: vec![PolicyText {
            name: "organisation.yaml".to_owned(),
            text,
        }],
        author: "ada".to_owned(),
        note: String::new(),
    };
    standing.publish(organisation(), publication).await.unwrap();
}

/// `/slow` answers `half`, and `done` once it is told to; everything else is echoed.
async fn origin(roots: &Roots, alpn: &[&str], go_on: Arc<Notify>) -> Origin {
    Origin::http(roots, alpn, move |request| {
        let go_on = go_on.clone();
        async move {
            if request.uri().path() != "/slow" {
                return Response::new(full("whole"));
            }
            let first = futures_util::stream::iter([Bytes::from_static(b"half")]);
            let second = futures_util::stream::once(async move {
                go_on.notified().await;
                Bytes::from_static(b"done")
            });
            let frames = first.chain(second).map(|bytes| Ok(Frame::data(bytes)));
            let body: Reply = StreamBody::new(frames).boxed_unsync();
            Response::builder()
                .header("content-length", 8)
                .body(body)
                .unwrap()
        }
    })
    .await
}

#[tokio::test]
async fn a_running_download_ends_as_decided_and_the_next_request_on_its_connection_is_refused() {
    let (roots, go_on) = (Roots::new(), Arc::new(Notify::new()));
    let origin = origin(&roots, &["http/1.1"], go_on.clone()).await;
    let stand = Stand::new(&roots, origin.port).await;
    let standing = standing(&stand).await;
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let request = format!("GET /slow HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut half = [0; 4];
    stream.read_exact(&mut half).await.unwrap();
    publish(&stand, &standing, "store.test").await;
    go_on.notify_one();
    stream.read_exact(&mut half).await.unwrap();
    assert_eq!(&half, b"done");
    let (head, body) = ask(&mut stream, &format!("GET /next HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(
        head.starts_with("HTTP/1.1 403 ") && head.contains("application/problem+json"),
        "{head}"
    );
    assert!(body.contains("allowed.test"), "{body}");
    assert_eq!(origin.seen().len(), 1);
    // And back again, on the connection that is still there.
    let rollback = Rollback {
        to: 1,
        author: "ada".to_owned(),
    };
    publish(&stand, &standing, "allowed.test").await;
    let (head, _) = ask(&mut stream, &format!("GET /again HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    standing.roll_back(organisation(), rollback).await.unwrap();
    let (head, _) = ask(&mut stream, &format!("GET /last HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let hash = stand.sessions.by_id("run-1").unwrap().policy_hash();
    let records = stand.records(7).await;
    let http: Vec<_> = records.iter().filter(|record| record.kind == "http").collect();
    let last = http.last().unwrap();
    assert_eq!((last.verdict, &last.policy_hash), (Verdict::Denied, &hash));
    assert!(
        http.iter()
            .any(|record| record.verdict == Verdict::Allowed && record.policy_hash != hash)
    );
}

#[tokio::test]
async fn the_next_stream_of_an_h2_connection_is_decided_anew() {
    let (roots, go_on) = (Roots::new(), Arc::new(Notify::new()));
    let origin = origin(&roots, &["h2"], go_on.clone()).await;
    let stand = Stand::new(&roots, origin.port).await;
    let standing = standing(&stand).await;
    let at = stand.at("allowed.test");
    let mut sender = stand.h2("allowed.test").await;
    let get = |path: &str| {
        let request = Request::builder().uri(format!("https://{at}{path}"));
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let running = sender.send_request(get("/slow")).await.unwrap();
    assert_eq!(running.status(), StatusCode::OK);
    publish(&stand, &standing, "store.test").await;
    let refused = sender.send_request(get("/next")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    go_on.notify_one();
    let body = running.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "halfdone", "what ran goes on as decided");
}

#[tokio::test]
async fn a_new_binding_works_on_a_connection_that_is_open_already() {
    let (roots, go_on) = (Roots::new(), Arc::new(Notify::new()));
    let origin = origin(&roots, &["http/1.1"], go_on).await;
    let stand = Stand::new(&roots, origin.port).await;
    let without = POLICY.replace("use: [token]\n", "\n");
    stand.put(&without);
    let at = stand.at("allowed.test");
    let mut stream = stand.h1("allowed.test").await;
    let bearer = format!("Authorization: Bearer {}\r\n", stand.placeholder);
    let with = format!("GET /a HTTP/1.1\r\nHost: {at}\r\n{bearer}\r\n");
    let (head, body) = ask(&mut stream, &with).await;
    assert!(
        head.starts_with("HTTP/1.1 403 "),
        "not bound there: {head} {body}"
    );
    stand.put(POLICY);
    let (head, body) = ask(&mut stream, &with).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    assert!(origin.seen()[0].contains(SECRET), "{:?}", origin.seen());
}
