//! OAuth log-ins against a server that checks what RFC 6749 demands, gives a new refresh token each time, and takes each once.
use super::super::testing::{Server, own, wanted};
use super::*;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use std::sync::Mutex as Lock;

type Fields = BTreeMap<String, String>;

fn posted(body: &str) -> Fields {
    url::form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect()
}

#[derive(Default)]
struct Issuer {
    asked: Lock<Vec<Fields>>,
    refreshed: Lock<usize>,
    revoked: Lock<Vec<String>>,
}

/// `agents:s3cret/+ value` in `Authorization`, form-encoded before base64.
const BASIC: &str = "Basic YWdlbnRzOnMzY3JldCUyRiUyQit2YWx1ZQ==";

async fn token(State(issuer): State<Arc<Issuer>>, headers: HeaderMap, body: String) -> Response {
    let fields = posted(&body);
    let refused = |code: &str| {
        let told = json!({"error": code, "error_description": "s3cret/+ value is wrong"});
        (axum::http::StatusCode::BAD_REQUEST, Json(told)).into_response()
    };
    let in_header = headers.get("authorization").is_some_and(|value| value == BASIC);
    let in_body = fields
        .get("client_secret")
        .is_some_and(|secret| secret == "s3cret/+ value");
    if !in_header && !in_body {
        return refused("invalid_client");
    }
    issuer.asked.lock().unwrap().push(fields.clone());
    let mut turn = issuer.refreshed.lock().unwrap();
    match fields["grant_type"].as_str() {
        "client_credentials" => {
            Json(json!({"access_token": "own-0123456789abcdef", "token_type": "bearer", "expires_in": 300}))
                .into_response()
        }
        "refresh_token" if fields["refresh_token"] == format!("refresh-{turn}-0123456789") => {
            *turn += 1;
            let next = format!("refresh-{turn}-0123456789");
            let token = format!("access-{turn}-0123456789");
            Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": 60, "refresh_token": next})).into_response()
        }
        "refresh_token" => refused("invalid_grant"),
        _ => refused("unsupported_grant_type"),
    }
}

async fn revoke(State(issuer): State<Arc<Issuer>>, body: String) {
    let fields = posted(&body);
    issuer.revoked.lock().unwrap().push(fields["token"].clone());
}

async fn stand(settings: &str) -> (Arc<Issuer>, Logins, Arc<Own>, Server) {
    let issuer = Arc::new(Issuer::default());
    let routes = axum::Router::new()
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .with_state(issuer.clone());
    let server = Server::start(routes).await;
    let own = own(tempfile::tempdir().unwrap());
    for (name, value) in [("client", "s3cret/+ value"), ("refresh", "refresh-0-0123456789")] {
        let value = Value::new(value.as_bytes().to_vec());
        own.replace(&Named::Store(name.into()), value).await.unwrap();
    }
    std::fs::write(own.path("wrong".as_ref()), "something else").unwrap();
    std::fs::write(own.path("refresh".as_ref()), "refresh-0-0123456789\n").unwrap();
    let text = format!(
        "partner: {{token-url: \"{}/token\", client-id: agents, {}}}",
        server.url,
        settings.replace("URL", &server.url)
    );
    let logins = Logins::new(serde_saphyr::from_str(&text).unwrap(), own.clone()).unwrap();
    (issuer, logins, own, server)
}

async fn fetched(logins: &Logins) -> Result<(String, Fetched), Fault> {
    let fetched = logins.fetch(&wanted(Source::Oauth("partner".into()), "")).await?;
    let token = String::from_utf8(fetched.fields[""].bytes().to_vec()).unwrap();
    Ok((token, fetched))
}

#[tokio::test]
async fn a_client_gets_a_token_of_its_own_and_gives_it_back() {
    for place in ["basic", "body"] {
        let (issuer, logins, _own, _server) = stand(&format!(
            "client-secret: {{store: client}}, scope: \"read write\", parameters: {{audience: \"https://api.test\"}}, revocation-url: \"URL/revoke\", authentication: {place}"
        ))
        .await;
        let (token, fetched) = fetched(&logins).await.unwrap();
        assert_eq!(
            (token.as_str(), fetched.valid_for),
            ("own-0123456789abcdef", Some(Duration::from_mins(5)))
        );
        let asked = issuer.asked.lock().unwrap()[0].clone();
        assert_eq!(
            (asked["scope"].as_str(), asked["audience"].as_str()),
            ("read write", "https://api.test")
        );
        logins.revoke(&fetched.lease.unwrap().id).await.unwrap();
        assert_eq!(*issuer.revoked.lock().unwrap(), [token]);
    }
}

#[tokio::test]
async fn a_refresh_token_that_is_replaced_each_time_is_kept_where_it_was_named() {
    let (_issuer, logins, own, _server) =
        stand("client-secret: {store: client}, refresh-token: {store: refresh}").await;
    for turn in 1..4 {
        let (token, fetched) = fetched(&logins).await.unwrap();
        assert_eq!(token, format!("access-{turn}-0123456789"));
        assert!(fetched.lease.is_none());
        let kept = own.read(&Named::Store("refresh".into())).unwrap();
        assert_eq!(kept.bytes(), format!("refresh-{turn}-0123456789").as_bytes());
    }
}

#[tokio::test]
async fn one_from_a_file_that_is_not_ours_to_write_is_kept_in_memory_until_another_is_set() {
    let (issuer, logins, own, _server) =
        stand("client-secret: {store: client}, refresh-token: {file: refresh}").await;
    for turn in 1..3 {
        assert_eq!(
            fetched(&logins).await.unwrap().0,
            format!("access-{turn}-0123456789")
        );
    }
    *issuer.refreshed.lock().unwrap() = 7;
    std::fs::write(own.path("refresh".as_ref()), "refresh-7-0123456789\n").unwrap();
    assert_eq!(fetched(&logins).await.unwrap().0, "access-8-0123456789");
}

#[tokio::test]
async fn several_sessions_at_once_use_each_refresh_token_once() {
    let (_issuer, logins, _own, _server) =
        stand("client-secret: {store: client}, refresh-token: {store: refresh}").await;
    let all = futures_util::future::join_all((0..8).map(|_| fetched(&logins))).await;
    let mut tokens: Vec<_> = all.into_iter().map(|fetched| fetched.unwrap().0).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 8);
}

#[tokio::test]
async fn a_refusal_is_told_by_its_code_and_repeats_nothing_that_was_sent() {
    let (_issuer, logins, _own, _server) = stand("client-secret: {file: wrong}").await;
    let fault = fetched(&logins).await.unwrap_err();
    assert_eq!(
        fault,
        Fault::lasting("the server of OAuth log-in `partner` refuses (status 400)")
    );
    assert!(logins.fault().unwrap().contains("OAuth log-in `partner`"));
    let why = logins
        .admits(&Source::Oauth("other".into()), &Who::default())
        .unwrap_err();
    assert!(why.contains("has no `other`"), "{why}");
}

#[test]
fn settings_by_which_anybody_could_be_the_client_are_errors() {
    for (text, words) in [
        ("client-id: a", "anybody could be this client"),
        (
            "client-id: a, client-secret: {store: x}, parameters: {scope: y}",
            "cannot have `scope`",
        ),
    ] {
        let text = format!("partner: {{token-url: \"https://login.test/token\", {text}}}");
        let own = own(tempfile::tempdir().unwrap());
        let why = Logins::new(serde_saphyr::from_str(&text).unwrap(), own).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}
