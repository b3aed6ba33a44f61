//! A client of a registry of containers, step by step as docker and skopeo take them, over both versions of HTTP (case T04).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::Stand;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, LOCATION, RANGE, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// What the token's endpoint gives: a value that the gateway does not know before, as it is for each log-in another one.
const TOKEN: &str =
    "eyJhbGciOiJFUzI1NiJ9.eyJhY2Nlc3MiOltdfQ.Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8UvWxAb3dEf6hIj";
const POLICY: &str = r#"
version: 1
name: registry
credentials:
  token: {from: {store: token}, hosts: [store.test], in: [basic]}
  pull: {from: {answer: store.test, path: /token, json: [/token, /access_token]}, hosts: [allowed.test], in: [bearer]}
rules:
  - {id: registry, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET, HEAD, POST, PATCH, PUT], path: "/v2/**", private: true}, use: [pull], effect: allow}
  - {id: store, to: {host: [store.test, 127.0.0.0/8], port: PORT, methods: [GET], path: ["/token", "/blobs/*"], private: true}, use: [token], effect: allow}
"#;

/// The registry's one upload, and what is stored.
type Stored = Arc<Mutex<Vec<u8>>>;

/// `allowed.test` is the registry, `store.test` gives tokens and has the blobs.
async fn registry(stored: Stored, request: Request<Incoming>) -> Response<Reply> {
    let answer = Response::builder();
    let place = authority(&request);
    let path = request.uri().path().to_owned();
    let logged_in = request
        .headers()
        .get(AUTHORIZATION)
        .map(|value| value.to_str().unwrap().to_owned());
    if place.starts_with("store.test") {
        return match path.as_str() {
            "/token"
                if logged_in
                    .as_ref()
                    .is_some_and(|value| value.starts_with("Basic ")) =>
            {
                let token =
                    format!("{{\"token\":\"{TOKEN}\",\"access_token\":\"{TOKEN}\",\"expires_in\":300}}");
                answer.body(full(token)).unwrap()
            }
            "/token" => answer.status(401).body(full("")).unwrap(),
            // A link that is signed already is refused with two kinds of log-in (S3).
            _ if logged_in.is_some() || request.uri().query() != Some("X-Amz-Signature=a%2Fb%3D&x=%7e") => {
                answer.status(400).body(full("")).unwrap()
            }
            _ => blob(&stored.lock().unwrap(), request.headers()),
        };
    }
    if logged_in != Some(format!("Bearer {TOKEN}")) {
        let realm = place.replace("allowed.test", "store.test");
        let challenge = format!(
            "Bearer realm=\"https://{realm}/token\",service=\"registry\",scope=\"repository:acme/app:pull,push\""
        );
        return answer
            .status(401)
            .header(WWW_AUTHENTICATE, challenge)
            .body(full("{}"))
            .unwrap();
    }
    let method = request.method().clone();
    match (method, path.as_str()) {
        (Method::POST, _) => answer
            .status(202)
            .header(LOCATION, "/v2/acme/app/blobs/uploads/1?_state=a%2Bb")
            .body(full(""))
            .unwrap(),
        (Method::PATCH, _) => {
            let range = request.headers()[CONTENT_RANGE].to_str().unwrap().to_owned();
            let piece = request.into_body().collect().await.unwrap().to_bytes();
            let mut whole = stored.lock().unwrap();
            assert_eq!(
                range,
                format!("{}-{}", whole.len(), whole.len() + piece.len() - 1)
            );
            whole.extend_from_slice(&piece);
            let end = format!("0-{}", whole.len() - 1);
            answer
                .status(202)
                .header(RANGE, end)
                .header(LOCATION, "uploads/1?_state=next")
                .body(full(""))
                .unwrap()
        }
        (Method::PUT, _) => {
            let fits = request.uri().query()
                == Some(&format!("_state=next&digest={}", digest(&stored.lock().unwrap())));
            answer
                .status(if fits { 201 } else { 400 })
                .body(full(""))
                .unwrap()
        }
        (Method::HEAD, path) => {
            let whole = stored.lock().unwrap();
            let known = path.ends_with(&digest(&whole));
            let status = if known {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            };
            answer
                .status(status)
                .header(CONTENT_LENGTH, whole.len())
                .header("docker-content-digest", digest(&whole))
                .body(full(""))
                .unwrap()
        }
        (_, path) if path.contains("/blobs/") => {
            let store = place.replace("allowed.test", "store.test");
            let link = format!("https://{store}/blobs/1?X-Amz-Signature=a%2Fb%3D&x=%7e");
            answer.status(307).header(LOCATION, link).body(full("")).unwrap()
        }
        _ => {
            let kinds: Vec<_> = request.headers().get_all(ACCEPT).iter().collect();
            assert_eq!(kinds.len(), 2, "{kinds:?}");
            answer
                .header("content-type", kinds[1])
                .body(full(MANIFEST))
                .unwrap()
        }
    }
}

const MANIFEST: &str = "{\n   \"schemaVersion\": 2,\n   \"layers\": []\n}";

fn authority<B>(request: &Request<B>) -> String {
    let host = || {
        request
            .headers()
            .get("host")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    request
        .uri()
        .authority()
        .map(ToString::to_string)
        .or_else(host)
        .unwrap()
}

fn digest(bytes: &[u8]) -> String {
    let sum: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{sum}")
}

/// The blob from where the client has it not yet.
fn blob(whole: &[u8], asked: &HeaderMap) -> Response<Reply> {
    let range = asked.get(RANGE).map(|value| value.to_str().unwrap());
    let Some(from) = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    }) else {
        return Response::new(full(whole.to_vec()));
    };
    let range = format!("bytes {from}-{}/{}", whole.len() - 1, whole.len());
    Response::builder()
        .status(206)
        .header(CONTENT_RANGE, range)
        .body(full(whole[from..].to_vec()))
        .unwrap()
}

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// A connection to a host.
enum Connection {
    One(http1::SendRequest<Sent>),
    Two(http2::SendRequest<Sent>),
}

/// A client that follows no redirect by itself.
struct Client<'a> {
    stand: &'a Stand,
    version: Version,
}

impl Client<'_> {
    async fn connect(&self, host: &str) -> Connection {
        let at = self.stand.at(host);
        if self.version == Version::HTTP_2 {
            let stream = self.stand.tls(&at, host, &["h2"]).await.unwrap();
            let (sender, running) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
            tokio::spawn(running);
            return Connection::Two(sender);
        }
        let stream = self.stand.tls(&at, host, &["http/1.1"]).await.unwrap();
        let (sender, running) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(running);
        Connection::One(sender)
    }

    /// One request; status, fields and body of its answer. A body of several pieces has no length.
    async fn ask(
        &self,
        (method, host, path): (Method, &str, &str),
        fields: &[(&str, &str)],
        body: &[&'static [u8]],
    ) -> (u16, HeaderMap, Bytes) {
        let at = self.stand.at(host);
        let mut request = Request::builder().method(method).version(self.version);
        request = match self.version {
            Version::HTTP_2 => request.uri(format!("https://{at}{path}")),
            _ => request.uri(path).header("host", at),
        };
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = match body {
            [whole] => Full::new(Bytes::from_static(whole)).boxed_unsync(),
            pieces => {
                let pieces: Vec<_> = pieces
                    .iter()
                    .map(|piece| Ok(Frame::data(Bytes::from_static(piece))))
                    .collect();
                StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync()
            }
        };
        let request = request.body(body).unwrap();
        let answer = match self.connect(host).await {
            Connection::One(mut sender) => sender.send_request(request).await,
            Connection::Two(mut sender) => sender.send_request(request).await,
        };
        let (head, body) = answer.unwrap().into_parts();
        (
            head.status.as_u16(),
            head.headers,
            body.collect().await.unwrap().to_bytes(),
        )
    }
}

/// The layer, in two pieces.
const LAYER: [&[u8]; 2] = [&[b'a'; 70_000], &[b'b'; 30_000]];

#[tokio::test]
async fn an_image_is_pushed_and_pulled_with_a_token_of_the_day_and_blobs_that_lie_elsewhere() {
    for (version, alpn) in [(Version::HTTP_11, "http/1.1"), (Version::HTTP_2, "h2")] {
        let (roots, stored) = (Roots::new(), Stored::default());
        let serving = stored.clone();
        let origin = Origin::http(&roots, &[alpn], move |request| registry(serving.clone(), request)).await;
        let stand = Stand::new(&roots, origin.port).await;
        stand.put(POLICY);
        let client = Client {
            stand: &stand,
            version,
        };
        let (ours, store) = ("allowed.test", "store.test");

        let (status, fields, _) = client.ask((Method::GET, ours, "/v2/"), &[], &[b""]).await;
        let challenge = fields[WWW_AUTHENTICATE].to_str().unwrap();
        assert!(
            status == 401 && challenge.contains(&format!("realm=\"https://{}/token\"", stand.at(store))),
            "{challenge}"
        );
        let login = format!("Basic {}", base64(&format!("agent:{}", stand.placeholder)));
        let (status, _, token) = client
            .ask(
                (Method::GET, store, "/token?service=registry"),
                &[("authorization", &login)],
                &[b""],
            )
            .await;
        let given: serde_json::Value = serde_json::from_slice(&token).unwrap();
        let token = given["token"].as_str().unwrap();
        assert_eq!((status, &given["access_token"]), (200, &given["token"]));
        assert!(token != TOKEN && token.len() == TOKEN.len(), "{token}");
        let bearer = ("authorization", &*format!("Bearer {token}"));

        let whole = LAYER.concat();
        let path = format!("/v2/acme/app/blobs/{}", digest(&whole));
        let (status, ..) = client.ask((Method::HEAD, ours, &path), &[bearer], &[b""]).await;
        assert_eq!(status, 404);
        let (status, fields, _) = client
            .ask(
                (Method::POST, ours, "/v2/acme/app/blobs/uploads/"),
                &[bearer],
                &[b""],
            )
            .await;
        let upload = fields[LOCATION].to_str().unwrap();
        assert_eq!(
            (status, upload),
            (202, "/v2/acme/app/blobs/uploads/1?_state=a%2Bb"),
            "as it was said"
        );
        let (status, fields, _) = client
            .ask(
                (Method::PATCH, ours, upload),
                &[bearer, ("content-range", "0-99999")],
                &LAYER,
            )
            .await;
        assert_eq!((status, fields[RANGE].to_str().unwrap()), (202, "0-99999"));
        assert_eq!(fields[LOCATION], "uploads/1?_state=next");
        let finish = format!(
            "/v2/acme/app/blobs/uploads/1?_state=next&digest={}",
            digest(&whole)
        );
        let (status, ..) = client.ask((Method::PUT, ours, &finish), &[bearer], &[b""]).await;
        assert_eq!(status, 201);

        let (status, fields, body) = client.ask((Method::HEAD, ours, &path), &[bearer], &[b""]).await;
        assert_eq!(
            (status, fields[CONTENT_LENGTH].to_str().unwrap(), body.len()),
            (200, "100000", 0)
        );
        assert_eq!(fields["docker-content-digest"], *digest(&whole));
        let (status, fields, _) = client.ask((Method::GET, ours, &path), &[bearer], &[b""]).await;
        let link = fields[LOCATION].to_str().unwrap();
        let elsewhere = link
            .strip_prefix(&format!("https://{}", stand.at(store)))
            .unwrap();
        assert_eq!(status, 307);
        let (status, _, body) = client.ask((Method::GET, store, elsewhere), &[], &[b""]).await;
        assert_eq!((status, digest(&body)), (200, digest(&whole)));
        let (status, fields, rest) = client
            .ask(
                (Method::GET, store, elsewhere),
                &[("range", "bytes=99990-")],
                &[b""],
            )
            .await;
        assert_eq!(
            (status, &rest[..], fields[CONTENT_RANGE].to_str().unwrap()),
            (206, &b"bbbbbbbbbb"[..], "bytes 99990-99999/100000")
        );

        let manifest = format!("/v2/acme/app/manifests/{}", digest(MANIFEST.as_bytes()));
        let kinds = [
            ("accept", "application/vnd.oci.image.index.v1+json"),
            ("accept", "application/vnd.oci.image.manifest.v1+json"),
        ];
        let (status, _, body) = client
            .ask(
                (Method::GET, ours, &manifest),
                &[&[bearer][..], &kinds].concat(),
                &[b""],
            )
            .await;
        assert_eq!((status, digest(&body)), (200, digest(MANIFEST.as_bytes())));

        let used: Vec<_> = stand
            .records(10)
            .await
            .into_iter()
            .filter(|record| !record.credentials_used.is_empty())
            .collect();
        let of = |path: &str| {
            used.iter()
                .filter(|record| record.path.as_deref() == Some(path))
                .collect::<Vec<_>>()
        };
        let [login] = of("/token")[..] else {
            panic!("{used:#?}")
        };
        assert_eq!(
            (&login.credentials_used[..], &login.credentials_redacted[..]),
            (&["token".to_owned()][..], &["pull".to_owned()][..])
        );
        assert!(
            used.iter()
                .all(|record| record.path == login.path || record.credentials_used == ["pull"]),
            "{used:#?}"
        );
        assert!(!format!("{used:?}").contains(TOKEN));
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
