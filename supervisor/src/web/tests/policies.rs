//! Standing policies as pages and command line meet them: who is logged in is the author, keys may have slashes.
use super::{Bench, problem, text};
use axum::body::Body;
use http::{StatusCode, header};
use serde_json::{Value, json};

#[tokio::test]
async fn whoever_is_logged_in_is_the_author() {
    let bench = Bench::new();
    let body = json!({"texts": [{"name": "p", "text": "version: 1"}], "note": "n"});
    let put = bench
        .request("PUT", "/api/policies/repository/acme/site")
        .header(header::CONTENT_TYPE, "application/json");
    let answer = bench
        .browser(put.body(Body::from(body.to_string())).unwrap())
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
    for change in [json!({"do": "rollback", "to": 1}), json!({"do": "withdraw"})] {
        let answer = bench.post("/api/policies/team/web", &change).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(
        bench.policies.asked(),
        [
            "ada publishes repository/acme/site",
            "ada rolls team/web back to 1",
            "ada withdraws team/web"
        ]
    );
    let forged = json!({"do": "withdraw", "author": "eve"});
    problem(
        bench.post("/api/policies/team/web", &forged).await,
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
}

#[tokio::test]
async fn what_stands_and_each_version_can_be_looked_at() {
    let bench = Bench::new();
    let all: Value = serde_json::from_str(&text(bench.get("/api/policies").await).await).unwrap();
    assert_eq!(all["strays"], json!(["org.yml"]));
    for path in ["organisation/versions", "repository/acme/site/versions/7"] {
        assert_eq!(
            bench.get(&format!("/api/policies/{path}")).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(
        bench.policies.asked(),
        ["versions of organisation", "7 of repository/acme/site"]
    );
    for (path, status) in [
        ("team/..%2f..%2fx/versions", StatusCode::BAD_REQUEST),
        ("run/x/versions", StatusCode::BAD_REQUEST),
        ("organisation", StatusCode::NOT_FOUND),
        ("organisation/versions/x", StatusCode::NOT_FOUND),
    ] {
        problem(bench.get(&format!("/api/policies/{path}")).await, status).await;
    }
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_is_said() {
    let bench = Bench::new();
    let detail = problem(
        bench.post("/api/policies/reload", &json!({})).await,
        StatusCode::SERVICE_UNAVAILABLE,
    )
    .await;
    assert!(detail.contains("gateway.sock"), "{detail}");
}
