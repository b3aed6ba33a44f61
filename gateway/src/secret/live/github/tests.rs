//! GitHub Apps against a server with the shape of GitHub's API: it checks what GitHub checks, and forgives less.
use super::super::testing::{Server, own, wanted};
use super::*;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use jsonwebtoken::{DecodingKey, Validation};
use serde_json::Value as Any;
use std::process::Command;
use std::sync::Mutex;

/// What the server knows and has seen.
#[derive(Default)]
struct Github {
    public_key: String,
    asked: Mutex<Vec<Any>>,
    revoked: Mutex<Vec<String>>,
    /// Seconds that its clock is before the real one.
    ahead: i64,
}

impl Github {
    /// The clock is checked as GitHub does: no token of the future, none that lasts more than ten minutes.
    fn knows_app(&self, headers: &HeaderMap) -> bool {
        let Some(jwt) = bearer_of(headers) else {
            return false;
        };
        let mut rules = Validation::new(Algorithm::RS256);
        rules.validate_exp = false;
        rules.required_spec_claims.clear();
        let key = DecodingKey::from_rsa_pem(self.public_key.as_bytes()).unwrap();
        let Ok(token) = jsonwebtoken::decode::<Any>(jwt, &key, &rules) else {
            return false;
        };
        let now = jiff::Timestamp::now().as_second() + self.ahead;
        let number = |name: &str| token.claims[name].as_i64().unwrap();
        token.claims["iss"] == "4711"
            && number("iat") <= now
            && number("exp") > now
            && number("exp") <= now + 600
    }
}

fn bearer_of(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("authorization")?
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")
}

fn said(github: &Github, status: u16, json: Any) -> Response {
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(github.ahead);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&now)
        .unwrap();
    let status = axum::http::StatusCode::from_u16(status).unwrap();
    (status, [("date", date)], Json(json)).into_response()
}

async fn installation(
    State(github): State<Arc<Github>>,
    Path((owner, _name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    match (github.knows_app(&headers), owner.as_str()) {
        (false, _) => said(
            &github,
            401,
            json!({"message": "A JSON web token could not be decoded"}),
        ),
        (true, "acme") => said(&github, 200, json!({"id": 77})),
        (true, _) => said(&github, 404, json!({"message": "Not Found"})),
    }
}

async fn token(State(github): State<Arc<Github>>, headers: HeaderMap, Json(asked): Json<Any>) -> Response {
    if !github.knows_app(&headers) || headers["x-github-api-version"] != API_VERSION {
        return said(
            &github,
            401,
            json!({"message": "A JSON web token could not be decoded"}),
        );
    }
    github.asked.lock().unwrap().push(asked);
    let ends = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(github.ahead + 3600);
    said(
        &github,
        201,
        json!({"token": "ghs_16C7e42F292c6912E7710c838347Ae178B4a", "expires_at": ends.to_string()}),
    )
}

async fn revoke(State(github): State<Arc<Github>>, headers: HeaderMap) -> Response {
    let token = bearer_of(&headers).unwrap().to_owned();
    github.revoked.lock().unwrap().push(token);
    axum::http::StatusCode::NO_CONTENT.into_response()
}

/// A server, and the provider that is set up for it, by this YAML besides the address and the key.
async fn stand(ahead: i64, settings: &str) -> (Arc<Github>, GithubApps, Server) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.pem");
    let run = |args: &[&str]| {
        let done = Command::new("openssl").args(args).arg(&file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    run(&["genrsa", "-traditional", "-out"]);
    let github = Arc::new(Github {
        public_key: run(&["rsa", "-pubout", "-in"]),
        ahead,
        ..Github::default()
    });
    let routes = axum::Router::new()
        .route("/api/v3/repos/{owner}/{name}/installation", get(installation))
        .route("/api/v3/app/installations/77/access_tokens", post(token))
        .route("/api/v3/installation/token", delete(revoke))
        .with_state(github.clone());
    let server = Server::start(routes).await;
    let text = format!(
        "agents: {{app-id: \"4711\", private-key: {{file: {}}}, api: \"{}/api/v3\", {settings}}}",
        file.display(),
        server.url
    );
    let settings = serde_saphyr::from_str(&text).unwrap();
    let apps = GithubApps::new(settings, own(folder)).unwrap();
    (github, apps, server)
}

fn source(repositories: &[&str], permissions: &[(&str, &str)]) -> Source {
    let own = |text: &&str| (*text).to_owned();
    Source::GithubApp {
        app: "agents".into(),
        repositories: repositories.iter().map(own).collect(),
        permissions: permissions
            .iter()
            .map(|(name, level)| (own(name), own(level)))
            .collect(),
    }
}

const SETTINGS: &str = "repositories: [\"acme/*\"], permissions: {contents: write, issues: read}";

#[tokio::test]
async fn a_token_is_for_the_runs_repository_and_what_the_policy_asks_for_and_is_given_back() {
    let (github, apps, _server) = stand(0, SETTINGS).await;
    let from = source(&["${run.repositories}", "acme/tools"], &[("contents", "read")]);
    let fetched = apps.fetch(&wanted(from, "acme/web")).await.unwrap();
    assert_eq!(
        *github.asked.lock().unwrap(),
        [json!({"repositories": ["tools", "web"], "permissions": {"contents": "read"}})]
    );
    let span = fetched.valid_for.unwrap();
    assert!((3500..=3600).contains(&span.as_secs()), "{span:?}");
    let token = fetched.fields[""].bytes().to_vec();
    let lease = fetched.lease.unwrap();
    assert!(!lease.renewable);
    apps.revoke(&lease.id).await.unwrap();
    assert_eq!(github.revoked.lock().unwrap().concat().as_bytes(), token);
    // Once is enough, and what is not known is gone.
    apps.revoke(&lease.id).await.unwrap();
    assert_eq!(github.revoked.lock().unwrap().len(), 1);
    assert_eq!(apps.fault(), None);
}

#[tokio::test]
async fn a_wrong_clock_of_ours_is_found_out_and_githubs_is_taken() {
    for ahead in [-1800, 1800] {
        let (github, apps, _server) = stand(ahead, SETTINGS).await;
        let from = source(&["acme/web"], &[]);
        let fetched = apps.fetch(&wanted(from, "")).await.unwrap();
        // Its clock is known to the second.
        assert!((3500..=3601).contains(&fetched.valid_for.unwrap().as_secs()));
        assert_eq!(
            github.asked.lock().unwrap()[0]["permissions"],
            json!({"contents": "write", "issues": "read"})
        );
    }
}

#[tokio::test]
async fn what_the_operator_does_not_let_policies_ask_for_is_refused_before_anything_is_asked() {
    let (github, apps, _server) = stand(0, SETTINGS).await;
    for (repositories, permissions, repository, words) in [
        (
            &["other/web"][..],
            &[][..],
            "",
            "lets no policy name the repository `other/web`",
        ),
        (&["${run.repositories}"], &[], "", "works on no repository"),
        (&["${run.repositories}"], &[], "other/web", "`other/web`"),
        (&[], &[], "acme/web", "names no `repositories`"),
        (&["acme/web"], &[("issues", "write")], "", "so much of `issues`"),
        (
            &["acme/web"],
            &[("administration", "read")],
            "",
            "so much of `administration`",
        ),
    ] {
        let wanted = wanted(source(repositories, permissions), repository);
        let why = apps.admits(&wanted.from, &wanted.who).unwrap_err();
        assert!(why.contains(words), "{why}");
        let fault = apps.fetch(&wanted).await.unwrap_err();
        assert_eq!((fault.sentence, fault.passing), (why, false));
    }
    assert!(github.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_app_that_is_not_installed_and_a_key_that_is_none_are_told() {
    let (_github, apps, _server) =
        stand(0, "repositories: [\"else/*\"], permissions: {contents: read}").await;
    let fault = apps
        .fetch(&wanted(source(&["else/web"], &[]), ""))
        .await
        .unwrap_err();
    assert!(fault.sentence.contains("not installed for `else/web`"), "{fault}");
    assert_eq!(apps.fault(), None);

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.pem"), "no key").unwrap();
    let text = "agents: {app-id: a, private-key: {file: app.pem}, api: \"http://127.0.0.1:1\", repositories: [a/b], permissions: {contents: read}}";
    let apps = GithubApps::new(serde_saphyr::from_str(text).unwrap(), own(folder)).unwrap();
    let fault = apps.fetch(&wanted(source(&["a/b"], &[]), "")).await.unwrap_err();
    assert!(fault.sentence.contains("no RSA key in PEM"), "{fault}");
    assert!(
        apps.fault()
            .unwrap()
            .contains("`agents`: the app's `private-key`")
    );
}

#[test]
fn settings_that_say_nothing_are_errors() {
    for (text, words) in [
        (
            "repositories: [], permissions: {contents: read}",
            "one of them is empty",
        ),
        (
            "repositories: [web], permissions: {contents: read}",
            "neither `owner/name`",
        ),
        (
            "repositories: [a/b], permissions: {contents: read}, api: \"http://git.example\"",
            "not encrypted",
        ),
    ] {
        let text = format!("agents: {{app-id: a, private-key: {{store: key}}, {text}}}");
        let folder = tempfile::tempdir().unwrap();
        let why = GithubApps::new(serde_saphyr::from_str(&text).unwrap(), own(folder)).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}
