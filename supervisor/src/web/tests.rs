//! The API and the pages as a browser and the command line meet them. Engine and gateway are fakes here: they
//! keep what they are told and answer from lists; the real ones are used by the workspace's tests.
mod fakes;
mod policies;
mod starter;

use super::{App, for_browsers, for_socket};
use crate::people::{Identity, People};
use axum::body::Body;
use axum::response::Response;
use fakes::{FakeDoor, FakePolicies, FakeRuns};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const ADDRESS: &str = "http://127.0.0.1:7420";

struct Bench {
    app: App,
    runs: Arc<FakeRuns>,
    policies: Arc<FakePolicies>,
    cookie: String,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let owner = Identity {
            user: "ada".to_owned(),
        };
        let people = People::open(&folder.path().join("browsers.json"), owner).unwrap();
        let now = jiff::Timestamp::now();
        let token = people.issue_address(people.owner(), now).unwrap();
        let cookie = format!("sallyport_7420={}", people.log_in(&token, now).unwrap().unwrap());
        let runs = Arc::new(FakeRuns::default());
        let policies = Arc::new(FakePolicies::default());
        let app = App {
            runs: runs.clone(),
            door: Arc::new(FakeDoor),
            policies: policies.clone(),
            people: Arc::new(people),
            registries: Arc::default(),
            address: ADDRESS.to_owned(),
            closing: CancellationToken::new(),
        };
        Self {
            app,
            runs,
            policies,
            cookie,
            _folder: folder,
        }
    }

    /// A request of a browser that is logged in.
    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7420")
            .header(header::COOKIE, &self.cookie)
    }

    async fn browser(&self, request: Request<Body>) -> Response {
        TowerToHyperService::new(for_browsers(self.app.clone()))
            .call(request)
            .await
            .unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.browser(self.request("GET", path).body(Body::empty()).unwrap())
            .await
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        let request = self
            .request("POST", path)
            .header(header::CONTENT_TYPE, "application/json");
        self.browser(request.body(Body::from(body.to_string())).unwrap())
            .await
    }
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Checks that an answer is a problem document of this status; gives its detail.
async fn problem(response: Response, status: StatusCode) -> String {
    assert_eq!(response.status(), status);
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "application/problem+json"
    );
    let document: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(document["status"], status.as_u16());
    document["detail"].as_str().unwrap().to_owned()
}

fn run_request() -> Value {
    json!({
        "title": "t", "task": "x", "who": {"user": "mallory", "parent_run": "p", "team": "web"},
        "policies": [{"name": "p", "text": "version: 1"}],
        "model": {"kind": "scripted", "turns": ""},
    })
}

#[tokio::test]
async fn who_is_not_logged_in_gets_nothing_but_the_way_in() {
    let bench = Bench::new();
    let anonymous = |path: &str| {
        Request::get(path)
            .header(header::HOST, "localhost:7420")
            .body(Body::empty())
            .unwrap()
    };
    problem(
        bench.browser(anonymous("/api/runs")).await,
        StatusCode::UNAUTHORIZED,
    )
    .await;
    let page = bench.browser(anonymous("/")).await;
    assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
    assert!(text(page).await.contains("sallyport login"));
    assert_eq!(
        bench.browser(anonymous("/assets/style.css")).await.status(),
        StatusCode::OK
    );
    let forged = Request::get("/api/runs")
        .header(header::HOST, "localhost")
        .header(header::COOKIE, "sallyport_7420=x");
    problem(
        bench.browser(forged.body(Body::empty()).unwrap()).await,
        StatusCode::UNAUTHORIZED,
    )
    .await;
    let owners_only = bench.post("/api/login-addresses", &json!({})).await;
    problem(owners_only, StatusCode::NOT_FOUND).await;
}

#[tokio::test]
async fn a_login_address_works_once_and_its_cookie_is_for_this_page_alone() {
    let bench = Bench::new();
    let socket = TowerToHyperService::new(for_socket(
        bench.app.clone(),
        Identity {
            user: "ada".to_owned(),
        },
    ));
    let made = socket
        .call(Request::post("/api/login-addresses").body(Body::empty()).unwrap())
        .await
        .unwrap();
    let made: Value = serde_json::from_str(&text(made).await).unwrap();
    let address = made["address"].as_str().unwrap().to_owned();
    let path = address.strip_prefix(ADDRESS).unwrap();
    let visit = || {
        Request::get(path)
            .header(header::HOST, "127.0.0.1:7420")
            .body(Body::empty())
            .unwrap()
    };
    let first = bench.browser(visit()).await;
    let cookie = first.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    assert!(
        bench
            .browser(visit())
            .await
            .headers()
            .get(header::SET_COOKIE)
            .is_none()
    );
    let request = Request::get("/api/me")
        .header(header::HOST, "127.0.0.1:7420")
        .header(header::COOKIE, cookie);
    assert!(
        text(bench.browser(request.body(Body::empty()).unwrap()).await)
            .await
            .contains("ada")
    );
}

#[tokio::test]
async fn a_rebound_host_and_another_sites_page_are_refused() {
    let bench = Bench::new();
    for host in [
        "evil.test:7420",
        "127.0.0.1.evil.test",
        "localhost.evil.test",
        "192.0.2.1:7420",
        "",
        "a b",
    ] {
        let request = Request::get("/api/runs")
            .header(header::HOST, host)
            .header(header::COOKIE, &bench.cookie);
        let answer = bench.browser(request.body(Body::empty()).unwrap()).await;
        problem(answer, StatusCode::MISDIRECTED_REQUEST).await;
    }
    for (name, value) in [
        ("origin", "http://127.0.0.1:9999"),
        ("origin", "null"),
        ("sec-fetch-site", "same-site"),
    ] {
        let request = bench.request("POST", "/api/runs/r/stop").header(name, value);
        problem(
            bench.browser(request.body(Body::empty()).unwrap()).await,
            StatusCode::FORBIDDEN,
        )
        .await;
        let request = bench.request("GET", "/api/runs").header(name, value);
        problem(
            bench.browser(request.body(Body::empty()).unwrap()).await,
            StatusCode::FORBIDDEN,
        )
        .await;
    }
    let own = bench
        .request("GET", "/api/runs")
        .header("origin", ADDRESS)
        .header("sec-fetch-site", "same-origin");
    assert_eq!(
        bench.browser(own.body(Body::empty()).unwrap()).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn pages_allow_nothing_from_elsewhere_and_nothing_inline() {
    let bench = Bench::new();
    for path in ["/", "/new", "/runs/r", "/log"] {
        let page = bench.get(path).await;
        assert_eq!(page.status(), StatusCode::OK, "{path}");
        let policy = page.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let html = text(page).await;
        let inline = html
            .split("<script")
            .skip(1)
            .any(|rest| !rest.starts_with(" type=\"module\" src=\"/assets/"));
        assert!(
            !inline && !html.contains(" style=") && !html.contains(" onclick") && !html.contains("//cdn"),
            "{path}"
        );
    }
    let script = bench.get("/assets/run.js").await;
    assert!(
        script.headers()[header::CONTENT_TYPE]
            .to_str()
            .unwrap()
            .contains("javascript")
    );
    let tag = script.headers()[header::ETAG].clone();
    let again = bench
        .request("GET", "/assets/run.js")
        .header(header::IF_NONE_MATCH, tag);
    assert_eq!(
        bench.browser(again.body(Body::empty()).unwrap()).await.status(),
        StatusCode::NOT_MODIFIED
    );
    problem(bench.get("/assets/..%2f..%2fweb.rs").await, StatusCode::NOT_FOUND).await;
}

#[tokio::test]
async fn a_run_is_started_for_the_one_who_is_logged_in_and_once_for_a_key() {
    let bench = Bench::new();
    let start = |key: &'static str, body: Value| {
        let request = bench
            .request("POST", "/api/runs")
            .header(header::CONTENT_TYPE, "application/json");
        request
            .header("idempotency-key", key)
            .body(Body::from(body.to_string()))
            .unwrap()
    };
    let first = bench.browser(start("k1", run_request())).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    let place = first.headers()[header::LOCATION].to_str().unwrap().to_owned();
    let again = bench.browser(start("k1", run_request())).await;
    assert_eq!(again.headers()[header::LOCATION].to_str().unwrap(), place);
    let who = bench.runs.started()[0].who.clone();
    assert_eq!(
        (who.user.as_str(), who.parent_run.as_str(), who.team.as_str()),
        ("ada", "", "web")
    );
    let mut other = run_request();
    other["task"] = json!("y");
    problem(bench.browser(start("k1", other)).await, StatusCode::CONFLICT).await;
    problem(
        bench.browser(start("k 1", run_request())).await,
        StatusCode::BAD_REQUEST,
    )
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_in_a_problem_document() {
    let bench = Bench::new();
    let mut unknown = run_request();
    unknown["services"] = json!([]);
    let detail = problem(
        bench.post("/api/runs", &unknown).await,
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    assert!(detail.contains("services"), "{detail}");
    let mut bad_policy = run_request();
    bad_policy["policies"] = json!([{"name": "bad", "text": ""}]);
    let answer = bench.post("/api/runs", &bad_policy).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let document: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(document["policy"][0]["line"], 3);
    let broken = bench
        .request("POST", "/api/runs")
        .header(header::CONTENT_TYPE, "application/json");
    problem(
        bench.browser(broken.body(Body::from("{")).unwrap()).await,
        StatusCode::BAD_REQUEST,
    )
    .await;
    let untyped = bench.request("POST", "/api/runs").body(Body::from("{}")).unwrap();
    problem(bench.browser(untyped).await, StatusCode::UNSUPPORTED_MEDIA_TYPE).await;
    problem(bench.get("/api/runs/none").await, StatusCode::NOT_FOUND).await;
    problem(bench.get("/api/nothing").await, StatusCode::NOT_FOUND).await;
    problem(
        bench.get("/api/runs/r/stop").await,
        StatusCode::METHOD_NOT_ALLOWED,
    )
    .await;
    problem(
        bench.post("/api/runs/r/messages", &json!({"text": " "})).await,
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    problem(
        bench.get("/api/audit?verdict=perhaps").await,
        StatusCode::BAD_REQUEST,
    )
    .await;
    problem(bench.get("/api/audit?colour=red").await, StatusCode::BAD_REQUEST).await;
    let answer = bench.get("/api/audit?host=down.test").await;
    assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
    problem(answer, StatusCode::SERVICE_UNAVAILABLE).await;
    let large = bench
        .post("/api/runs", &json!({"title": "x".repeat(9 << 20)}))
        .await;
    problem(large, StatusCode::PAYLOAD_TOO_LARGE).await;
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_that_was_seen() {
    let bench = Bench::new();
    let all = text(bench.get("/api/runs/r/events").await).await;
    let ids: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    assert!(all.contains("event: rewind") && all.contains("event: ended"));
    let rest = bench
        .request("GET", "/api/runs/r/events?after=1")
        .header("last-event-id", "3");
    let rest = text(bench.browser(rest.body(Body::empty()).unwrap()).await).await;
    assert!(rest.contains("id: 4") && !rest.contains("id: 3"), "{rest}");
    assert_eq!(
        bench.get("/api/runs/r/events?after=4").await.status(),
        StatusCode::NO_CONTENT
    );
    let nonsense = bench
        .request("GET", "/api/runs/r/events")
        .header("last-event-id", "x");
    problem(
        bench.browser(nonsense.body(Body::empty()).unwrap()).await,
        StatusCode::BAD_REQUEST,
    )
    .await;
}

#[tokio::test]
async fn a_live_stream_ends_when_the_supervisor_goes_down() {
    let bench = Bench::new();
    let mut live = bench.get("/api/runs/live/events").await.into_body();
    let first = live.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"id: 1"), "{first:?}");
    bench.app.closing.cancel();
    let rest = tokio::time::timeout(std::time::Duration::from_secs(5), live.collect()).await;
    assert!(rest.unwrap().unwrap().to_bytes().is_empty());
}
