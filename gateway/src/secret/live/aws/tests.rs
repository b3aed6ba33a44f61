//! What is read of AWS's answers, and what is refused before it is asked. Signatures are checked by moto, in `tests/traffic/fetched.rs`.
use super::super::testing::{Server, own, wanted};
use super::*;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use std::sync::Mutex;

fn account(settings: &str) -> Result<Aws, String> {
    let own = own(tempfile::tempdir().unwrap());
    for name in ["id", "key"] {
        std::fs::write(own.path(name.as_ref()), "AKIDEXAMPLEEXAMPLE").unwrap();
    }
    let text = format!(
        "{{region: eu-west-1, access-key-id: {{file: id}}, secret-access-key: {{file: key}}, {settings}}}"
    );
    Aws::new(serde_saphyr::from_str(&text).unwrap(), own)
}

fn secret(name: &str) -> Source {
    Source::AwsSecret {
        name: name.into(),
        field: None,
    }
}

#[tokio::test]
async fn a_secret_is_given_whole_and_by_its_fields_and_a_clock_that_is_wrong_is_corrected() {
    /// Takes a request that is signed for its own time, half an hour ahead, and remembers the others.
    static REFUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    async fn answer(headers: HeaderMap) -> Response {
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        let date = [("date", printer.timestamp_to_rfc9110_string(&now).unwrap())];
        let signed_at = headers["x-amz-date"].to_str().unwrap().to_owned();
        let minute = now.strftime("%Y%m%dT%H%M").to_string();
        if signed_at.get(..13) < minute.get(..13) {
            REFUSED.lock().unwrap().push(signed_at);
            let body = r#"{"__type":"com.amazonaws#InvalidSignatureException"}"#;
            return (axum::http::StatusCode::BAD_REQUEST, date, body).into_response();
        }
        let secret = r#"{"user":"agents","password":"p4ss-0123456789abcdef","port":5432}"#;
        (date, json!({"SecretString": secret}).to_string()).into_response()
    }
    let server = Server::start(axum::Router::new().fallback(answer)).await;
    let aws = account(&format!("endpoint: \"{}\", allow: [agents/*]", server.url)).unwrap();
    let fetched = aws.fetch(&wanted(secret("agents/db"), "")).await.unwrap();
    assert_eq!(REFUSED.lock().unwrap().len(), 1);
    let names: Vec<_> = fetched.fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["", "password", "user"]);
    assert_eq!(fetched.fields["password"].bytes(), b"p4ss-0123456789abcdef");
    assert!(fetched.fields[""].bytes().starts_with(b"{\"user\""));
}

#[test]
fn a_binary_secret_is_decoded_and_one_that_is_no_object_has_no_fields() {
    let mut binary = Wiped(json!({"SecretBinary": "AAH/"}));
    assert_eq!(fields(&mut binary).unwrap()[""].bytes(), [0, 1, 255]);
    let mut plain = Wiped(json!({"SecretString": "\"just a text\""}));
    assert_eq!(fields(&mut plain).unwrap().len(), 1);
    assert!(fields(&mut Wiped(json!({"Name": "x"}))).is_none());
}

#[tokio::test]
async fn what_is_not_listed_is_refused_and_a_leading_slash_counts_for_nothing() {
    let aws = account("allow: [\"agents/*\", /shared/key]").unwrap();
    for (from, admitted) in [
        (secret("agents/model"), true),
        (secret("agents"), false),
        (secret("agents/../shared"), false),
        (secret("others/model"), false),
        (Source::AwsParameter("/agents/a/b".into()), true),
        (Source::AwsParameter("shared/key".into()), true),
        (Source::AwsParameter("/shared/key/deeper".into()), false),
        (Source::Oauth("agents/model".into()), false),
    ] {
        assert_eq!(aws.admits(&from, &Who::default()).is_ok(), admitted, "{from:?}");
    }
}

#[test]
fn settings_that_cannot_be_meant_are_errors() {
    for (settings, words) in [
        ("allow: []", "`allow` is empty"),
        ("allow: [a/*], endpoint: \"http://aws.example\"", "not encrypted"),
        ("allow: [a/*], ca: nowhere.pem", "cannot be read"),
    ] {
        let why = account(settings).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}
