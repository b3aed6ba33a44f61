//! What a log-in gives stays in the gateway: the agent has a placeholder of it, which goes where its credential says (case T04).
use crate::origin::{Origin, Reply, Roots, full};
use crate::stand::{Stand, ask};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_gateway::control::types::Verdict;

const ACCESS: &str =
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8UvWxAb3dEf6hIj";
const REFRESH: &str = "rt_Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8U";
const SECOND: &str = "Nc9Md1Ke3Jf5Hg0Pa2Ts8UZq8Lw2Xv7Rt4Yb6";
const POLICY: &str = r#"
version: 1
name: log-ins
credentials:
  access: {from: {answer: allowed.test, path: /oauth/token, json: /access_token}, hosts: [allowed.test], in: [bearer]}
  refresh: {from: {answer: allowed.test, path: /oauth/token, json: /refresh_token}, hosts: [allowed.test], in: ["form:refresh_token"]}
  session: {from: {answer: allowed.test, path: /login, header: x-session}, hosts: [allowed.test], in: ["header:x-session"]}
  device: {from: {answer: allowed.test, path: /device, form: access_token}, hosts: [allowed.test], in: [bearer]}
rules:
  - {id: all, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, private: true}, use: [access, refresh, session, device], effect: allow}
  - {id: store, to: {host: [store.test, 127.0.0.0/8], port: PORT, private: true}, effect: allow}
"#;

/// A server with log-ins of several kinds, which tells what it was sent with.
async fn server(request: Request<Incoming>) -> Response<Reply> {
    let path = request.uri().path().to_owned();
    let text = |request: &Request<Incoming>, name: &str| {
        let value = request.headers().get(name);
        value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    };
    let sent = [text(&request, "authorization"), text(&request, "x-session")];
    let asked = request.into_body().collect().await.unwrap().to_bytes();
    let answer = Response::builder();
    match (path.as_str(), &asked[..]) {
        ("/oauth/token", b"grant_type=password&username=ada&password=x") => {
            let tokens = format!(
                "{{\"access_token\":\"{ACCESS}\",\"refresh_token\":\"{REFRESH}\",\"expires_in\":300}}"
            );
            answer.body(full(tokens)).unwrap()
        }
        ("/oauth/token", body)
            if body == format!("grant_type=refresh_token&refresh_token={REFRESH}").as_bytes() =>
        {
            let tokens =
                gzip(format!("{{\"access_token\": \"{SECOND}\", \"echo\": \"{REFRESH}\"}}").as_bytes()).await;
            answer
                .header("content-encoding", "gzip")
                .body(full(tokens))
                .unwrap()
        }
        ("/oauth/token", _) => answer
            .status(400)
            .body(full("{\"error\":\"invalid_grant\"}"))
            .unwrap(),
        ("/login", b"broken") => answer.header("x-session", "short").body(full("")).unwrap(),
        ("/login", _) => answer.header("x-session", REFRESH).body(full("welcome")).unwrap(),
        ("/device", b"page") => answer
            .body(full(format!("scope=repo&access_token={SECOND}")))
            .unwrap(),
        ("/device", _) => answer.body(full("x".repeat(300_000))).unwrap(),
        _ => answer.body(full(sent.join("|"))).unwrap(),
    }
}

async fn gzip(text: &[u8]) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let mut coded = Vec::new();
    let mut coder = async_compression::tokio::bufread::GzipEncoder::new(text);
    coder.read_to_end(&mut coded).await.unwrap();
    coded
}

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], server).await;
    let limits = sallyport_gateway::limits::Limits {
        log_in_answer_bytes: 200_000,
        ..Default::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    stand.put(POLICY);
    (stand, origin)
}

/// One request; its answer's head and body, decoded.
async fn asked(stand: &Stand, host: &str, path: &str, fields: &str, body: &str) -> (String, String) {
    let kind = if body.is_empty() {
        ""
    } else {
        "Content-Type: application/x-www-form-urlencoded\r\n"
    };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\n{fields}{kind}Content-Length: {}\r\n\r\n{body}",
        stand.at(host),
        body.len()
    );
    ask(&mut stand.h1(host).await, &request).await
}

fn field(json: &str, name: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    value[name].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_log_in_gives_placeholders_that_work_where_its_tokens_would_and_nowhere_else() {
    let (stand, origin) = stand().await;
    let ours = "allowed.test";
    let (head, tokens) = asked(
        &stand,
        ours,
        "/oauth/token",
        "",
        "grant_type=password&username=ada&password=x",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}{tokens}");
    let (access, refresh) = (field(&tokens, "access_token"), field(&tokens, "refresh_token"));
    assert!(
        access != ACCESS && refresh != REFRESH && refresh.starts_with("rt_"),
        "{tokens}"
    );
    let claims = ACCESS.rsplit_once('.').unwrap().0;
    assert!(
        access.starts_with(claims) && access.len() == ACCESS.len(),
        "what it says stays readable: {access}"
    );

    let bearer = format!("Authorization: Bearer {access}\r\n");
    let (_, echo) = asked(&stand, ours, "/api", &bearer, "").await;
    assert_eq!(echo, format!("Bearer {access}|"), "redacted on its way back");
    let (head, _) = asked(&stand, "store.test", "/api", &bearer, "").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "not for this host: {head}");

    let form = format!("grant_type=refresh_token&refresh_token={refresh}");
    let request = format!(
        "POST /oauth/token HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        stand.at(ours),
        form.len()
    );
    let mut stream = stand.h1(ours).await;
    let answer = raw(&mut stream, &request).await;
    let second = decoded(&answer).await;
    assert_eq!(field(&second, "echo"), refresh);
    let access = field(&second, "access_token");
    assert!(access != SECOND && access.len() == SECOND.len(), "{second}");
    let (_, echo) = asked(
        &stand,
        ours,
        "/api",
        &format!("Authorization: Bearer {access}\r\n"),
        "",
    )
    .await;
    assert_eq!(echo, format!("Bearer {access}|"));
    let heads = origin.seen();
    let sent = |token: &str| heads.iter().any(|head| head.contains(&format!("Bearer {token}")));
    assert!(sent(ACCESS) && sent(SECOND), "the server got the tokens");

    let records = stand.records_until(4, |record| record.ending == "complete").await;
    let told = format!("{records:?}");
    assert!(
        [ACCESS, REFRESH, SECOND]
            .iter()
            .all(|token| !told.contains(token)),
        "{told}"
    );
    assert_eq!(records[0].credentials_redacted, ["access", "refresh"]);
    assert_eq!(records[1].credentials_used, ["access"]);
    assert_eq!(records[2].credentials_used, ["refresh"]);
}

#[tokio::test]
async fn tokens_in_headers_and_forms_are_kept_and_what_cannot_be_is_not_let_through() {
    let (stand, origin) = stand().await;
    let ours = "allowed.test";
    let (head, body) = asked(&stand, ours, "/login", "", "").await;
    let session = head
        .lines()
        .find_map(|line| line.strip_prefix("x-session: "))
        .unwrap()
        .to_owned();
    assert!(session != REFRESH && session.starts_with("rt_"), "{head}");
    assert_eq!(body, "welcome");
    let (_, form) = asked(&stand, ours, "/device", "", "page").await;
    let token = form.strip_prefix("scope=repo&access_token=").unwrap();
    assert!(token != SECOND && token.len() == SECOND.len(), "{form}");
    let fields = format!("Authorization: Bearer {token}\r\nX-Session: {session}\r\n");
    let (_, echo) = asked(&stand, ours, "/api", &fields, "").await;
    assert_eq!(echo, format!("Bearer {token}|{session}"));
    let last = origin.seen().pop().unwrap();
    assert!(last.contains(SECOND) && last.contains(REFRESH), "{last}");

    for (path, body, why) in [
        ("/login", "broken", "5 bytes"),
        ("/device", "long", "200000 bytes"),
    ] {
        let (head, told) = asked(&stand, ours, path, "", body).await;
        assert!(
            head.starts_with("HTTP/1.1 502 ") && told.contains(why),
            "{head}{told}"
        );
    }
    let (head, told) = asked(&stand, ours, "/oauth/token", "", "grant_type=other").await;
    assert!(
        head.starts_with("HTTP/1.1 400 ") && told.contains("invalid_grant"),
        "a no passes: {head}{told}"
    );
    let refused = |record: &sallyport_gateway::control::types::AuditRecord| record.verdict == Verdict::Denied;
    assert_eq!(stand.records_until(2, refused).await.len(), 2);
}

/// Sends a request and reads the whole answer.
async fn raw(
    stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin),
    request: &str,
) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    // A close without TLS's farewell counts.
    let _read = stream.read_to_end(&mut all).await;
    all
}

/// The body of a gzip'd answer in chunks.
async fn decoded(answer: &[u8]) -> String {
    use tokio::io::AsyncReadExt;
    let text = String::from_utf8_lossy(answer).into_owned();
    let at = memchr::memmem::find(answer, b"\r\n\r\n").unwrap() + 4;
    assert!(
        text.contains("content-encoding: gzip") && text.contains("transfer-encoding: chunked"),
        "{text}"
    );
    let (mut rest, mut coded) = (&answer[at..], Vec::new());
    loop {
        let end = memchr::memmem::find(rest, b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        coded.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    let coded = Bytes::from(coded);
    let mut text = String::new();
    let mut coder = async_compression::tokio::bufread::GzipDecoder::new(&coded[..]);
    coder.read_to_string(&mut text).await.unwrap();
    text
}
