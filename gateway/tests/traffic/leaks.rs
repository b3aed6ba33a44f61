//! What becomes of secrets that are about to go where they must not, as a policy says (cases S01, S02, S04, S07).
use crate::origin::{Got, Origin, Roots, taking};
use crate::stand::{SECRET, Stand};
use crate::websocket;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::Request;
use http::request::Parts;
use http_body_util::{BodyExt, Full};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sallyport_gateway::control::types::Verdict;
use std::io::Read as _;
use tokio_tungstenite::tungstenite::protocol::Message;

/// `LEAKS` stands for what the rule of `store.test` says.
const POLICY: &str = r#"
version: 1
name: test
credentials:
  token:
    from: {store: token}
    hosts: [allowed.test]
    in: [bearer, basic, "websocket:/auth/token"]
    env: TOKEN
rules:
  - id: allowed
    to: {host: [allowed.test, 127.0.0.0/8], port: PORT, private: true}
    use: [token]
    effect: allow
  - id: store
    to: {host: [store.test, 127.0.0.0/8], port: PORT, private: true}
    effect: allow
    LEAKS
"#;

async fn stand(leaks: &str) -> (Stand, Origin, Got) {
    let roots = Roots::new();
    let (origin, got) = taking(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&POLICY.replace("LEAKS", leaks));
    (stand, origin, got)
}

/// Sends a request and gives its status, its answer and what came of it upstream.
async fn send(
    (stand, got): (&Stand, &Got),
    request: http::request::Builder,
    body: impl Into<Bytes>,
) -> (u16, String, Option<(Parts, Bytes)>) {
    let request = request.body(Full::new(body.into())).unwrap();
    let host = request.uri().host().unwrap().to_owned();
    let mut sender = stand.h2(&host).await;
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        parts.status.as_u16(),
        String::from_utf8(body.to_vec()).unwrap(),
        got.lock().unwrap().pop(),
    )
}

/// A `POST` to a host and target.
fn post(stand: &Stand, host: &str, target: &str) -> http::request::Builder {
    let uri = format!("https://{}{target}", stand.at(host));
    Request::builder().method("POST").uri(uri)
}

/// The forms in which a value is looked for.
fn forms(value: &str) -> Vec<String> {
    let hex = |upper| {
        value.bytes().map(move |byte| match upper {
            true => format!("{byte:02X}"),
            false => format!("{byte:02x}"),
        })
    };
    vec![
        value.to_owned(),
        STANDARD.encode(value),
        STANDARD.encode(format!("x{value}")),
        STANDARD.encode(format!("xy{value}z")),
        URL_SAFE_NO_PAD.encode(format!("u:{value}")),
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        value.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        hex(false).collect(),
        hex(true).collect(),
    ]
}

#[tokio::test]
async fn a_value_in_any_form_and_place_is_refused_by_name_and_never_shown() {
    let (stand, _origin, got) = stand("").await;
    let mut refused = 0;
    for form in forms(SECRET) {
        let at = |target: &str| post(&stand, "store.test", target);
        let cases = [
            (
                "header `x-data`",
                at("/").header("x-data", format!("a {form} b")),
                "",
            ),
            (
                "header `cookie`",
                at("/").header("cookie", format!("s={form}; x=1")),
                "",
            ),
            ("target", at(&format!("/a/{form}/b").replace('=', "%3D")), ""),
            ("target", at(&format!("/?q={form}&x=1")), ""),
            ("body", at("/"), form.as_str()),
        ];
        for (place, request, body) in cases {
            let (status, text, arrived) = send((&stand, &got), request, body.to_owned()).await;
            assert_eq!(
                (status, arrived.is_none()),
                (403, true),
                "{place}: {form}: {text}"
            );
            assert!(
                text.contains("`token`") && text.contains(place),
                "{place}: {text}"
            );
            assert!(!forms(SECRET).iter().any(|form| text.contains(form)), "{text}");
            refused += 1;
        }
    }
    let records = stand.records(refused).await;
    assert!(
        records.iter().all(|record| record.verdict == Verdict::Denied),
        "{records:#?}"
    );
    let told = format!("{records:?}");
    assert!(!forms(SECRET).iter().any(|form| told.contains(form)));
}

#[tokio::test]
async fn a_rule_may_send_placeholders_instead_of_values() {
    let (stand, _origin, got) = stand("leaks: {values: redact}").await;
    for (form, stand_in) in forms(SECRET).into_iter().zip(forms(&stand.placeholder)) {
        let request =
            post(&stand, "store.test", &format!("/v1?x={form}")).header("x-data", format!("is {form}"));
        let (status, text, arrived) = send((&stand, &got), request, format!("said {form}.")).await;
        assert_eq!(status, 200, "{form}: {text}");
        let (parts, body) = arrived.unwrap();
        assert_eq!(
            body,
            format!("said {stand_in}."),
            "as it would have been with the placeholder"
        );
        assert_eq!(parts.headers["x-data"], format!("is {stand_in}"));
        assert_eq!(parts.uri.query(), Some(format!("x={stand_in}").as_str()));
        assert_eq!(parts.headers["content-length"], body.len().to_string());
    }
    let mut coder = flate2::read::GzEncoder::new(SECRET.as_bytes(), flate2::Compression::fast());
    let mut coded = Vec::new();
    coder.read_to_end(&mut coded).unwrap();
    let request = post(&stand, "store.test", "/").header("content-encoding", "gzip");
    let (status, _, arrived) = send((&stand, &got), request, coded).await;
    let mut text = String::new();
    flate2::read::GzDecoder::new(&arrived.unwrap().1[..])
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!((status, text), (200, stand.placeholder.clone()));
    let path = format!("/{SECRET}");
    let (status, text, arrived) = send((&stand, &got), post(&stand, "store.test", &path), "").await;
    assert_eq!(
        (status, arrived.is_none()),
        (403, true),
        "what is decided on is not changed: {text}"
    );
    let records = stand.records(11).await;
    let first = &records[0].reason;
    for place in ["header `x-data`", "the query", "the body"] {
        let said = format!("value of credential `token` in {place}, its placeholder was sent");
        assert!(first.contains(&said), "{first}");
    }
    assert!(!format!("{records:?}").contains(SECRET));
}

#[tokio::test]
async fn a_rule_may_take_off_what_a_client_repeats_after_a_redirect() {
    let (stand, _origin, got) = stand("leaks: {placeholders: strip}").await;
    let basic = STANDARD.encode(format!("user:{}", stand.placeholder));
    let cookie = format!("a=1; token={}", stand.placeholder);
    let bearer = format!("Bearer {}", stand.placeholder);
    for (name, value) in [
        ("authorization", bearer.clone()),
        ("authorization", format!("Basic {basic}")),
        ("x-api-key", stand.placeholder.clone()),
        ("cookie", cookie),
    ] {
        let request = post(&stand, "store.test", "/o?X-Amz-Signature=1").header(name, value);
        let (status, text, arrived) = send((&stand, &got), request.header("x-other", "kept"), "").await;
        let (parts, _) = arrived.unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(!parts.headers.contains_key(name) && parts.headers["x-other"] == "kept");
    }
    let own = post(&stand, "store.test", "/").header("authorization", "Bearer of-its-own");
    let (_, _, arrived) = send((&stand, &got), own, "").await;
    assert_eq!(arrived.unwrap().0.headers["authorization"], "Bearer of-its-own");
    let parameter = format!("/?token={}", stand.placeholder);
    let (status, ..) = send((&stand, &got), post(&stand, "store.test", &parameter), "").await;
    assert_eq!(status, 403, "a parameter is not taken off");
    let bound = post(&stand, "allowed.test", "/").header("authorization", bearer);
    let (_, _, arrived) = send((&stand, &got), bound, "").await;
    assert_eq!(
        arrived.unwrap().0.headers["authorization"],
        format!("Bearer {SECRET}")
    );
    let record = &stand.records(1).await[0];
    assert!(
        record
            .reason
            .contains("header `authorization`, which was taken off"),
        "{}",
        record.reason
    );
}

#[tokio::test]
async fn a_placeholder_in_a_conversation_passes_and_is_noted_unless_a_rule_lets_none_pass() {
    let (stand, _origin, got) = stand("").await;
    let history = format!(
        "{{\"text\": \"{}{}\"}}",
        "said ".repeat(40_000),
        stand.placeholder
    );
    let json =
        |stand: &Stand| post(stand, "store.test", "/v1/messages").header("content-type", "application/json");
    let (status, _, arrived) = send((&stand, &got), json(&stand), history.clone()).await;
    assert_eq!((status, arrived.unwrap().1), (200, Bytes::from(history.clone())));
    let record = stand
        .records_of(|record| record.ending == "complete")
        .await
        .pop()
        .unwrap();
    let noted = "placeholder of credential `token` in the body, passed unchanged";
    assert!(record.reason.contains(noted), "{}", record.reason);
    stand.put(&POLICY.replace("LEAKS", "leaks: {placeholders: refuse}"));
    let query = format!("/?q={}", stand.placeholder);
    for (request, body) in [
        (json(&stand), history),
        (
            post(&stand, "store.test", "/").header("x-data", &stand.placeholder),
            String::new(),
        ),
        (post(&stand, "store.test", &query), String::new()),
    ] {
        let (status, text, arrived) = send((&stand, &got), request, body).await;
        assert_eq!((status, arrived.is_none()), (403, true), "{text}");
        assert!(text.contains("lets none pass here"), "{text}");
    }
}

#[tokio::test]
async fn what_looks_like_a_secret_is_told_by_its_form_or_refused() {
    let unknown = format!("ghp_{}", "aB3dE6gH9jK2mN5pQ8sT".repeat(2).split_at(36).0);
    let sends = |stand: &Stand| {
        let post = |target: &str| post(stand, "store.test", target);
        [
            (
                post("/").header("authorization", format!("Bearer {unknown}")),
                String::new(),
            ),
            (post(&format!("/?q={unknown}")), String::new()),
            (post("/"), format!("{}{unknown}", "text ".repeat(30_000))),
            (post("/"), format!("{} is mine", stand.placeholder)),
        ]
    };
    let (stand, _origin, got) = stand("leaks: {unknown: log}").await;
    for (request, body) in sends(&stand) {
        assert_eq!(send((&stand, &got), request, body).await.0, 200);
    }
    let records = stand.records_until(4, |record| record.ending == "complete").await;
    let told = records
        .iter()
        .map(|record| record.reason.contains("(`github-token`)"));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [true, true, true, false],
        "{records:#?}"
    );
    stand.put(&POLICY.replace("LEAKS", "leaks: {unknown: refuse}"));
    let statuses = [403, 403, 403, 200];
    for ((request, body), wanted) in sends(&stand).into_iter().zip(statuses) {
        let (status, text, _) = send((&stand, &got), request, body).await;
        assert_eq!(status, wanted, "{text}");
        assert!(!text.contains(&unknown));
    }
}

#[tokio::test]
async fn a_text_message_gets_the_credential_at_its_pointer_and_a_binary_one_none() {
    let roots = Roots::new();
    let (origin, came) = websocket::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.put(&POLICY.replace("LEAKS", ""));
    let mut socket = websocket::connected(&stand).await;
    let texts = [
        "{\"op\": 2, \"auth\": {\"token\": \"PH\"}, \"say\": \"PH\"}",
        "{\"auth\": {\"token\": \"Bearer PH\"}}",
        "42/chat,7[\"PH\", {\"auth\": {\"token\": \"PH\"}}]",
        "40{\"auth\":{\"token\":\"PH\"}}",
        "PH",
    ];
    let wanted = [
        "{\"op\": 2, \"auth\": {\"token\": \"REAL\"}, \"say\": \"PH\"}",
        "{\"auth\": {\"token\": \"Bearer REAL\"}}",
        texts[2],
        "40{\"auth\":{\"token\":\"REAL\"}}",
        "PH",
    ];
    let filled = |text: &str| text.replace("PH", &stand.placeholder).replace("REAL", SECRET);
    for text in texts {
        socket.send(Message::text(filled(text))).await.unwrap();
    }
    let binary = filled(texts[0]).into_bytes();
    socket.send(Message::binary(binary.clone())).await.unwrap();
    socket.close(None).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        assert!(!message.to_string().contains(SECRET), "{message}");
    }
    let came = came.lock().unwrap().clone();
    for text in wanted {
        let text = format!("{:?}", Message::text(filled(text)));
        assert!(came.contains(&text), "{text} in {came:?}");
    }
    assert!(came.contains(&format!("{:?}", Message::binary(binary))));
}
