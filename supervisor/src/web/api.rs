//! The JSON API: what the pages and the command line call.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `GET /healthz` | | 200 where the supervisor answers |
//! | `GET /api/me` | | who is logged in |
//! | `GET /api/runs` | | runs, newest first |
//! | `POST /api/runs` (`Idempotency-Key`) | `RunRequest` | 201 and the run; 422 with `policy` problems; 409 where the key belongs to another request |
//! | `GET /api/runs/{id}` | | the run |
//! | `POST /api/runs/{id}/messages` | `{"text": ...}` | 204 |
//! | `POST /api/runs/{id}/stop` | | 204 |
//! | `GET /api/runs/{id}/entries` (`?after=N`) | | the conversation so far, as `Entry` documents |
//! | `GET /api/runs/{id}/events` (`Last-Event-ID` or `?after=N`) | | SSE of `Entry`, `id` its sequence; 204 where nothing will follow |
//! | `GET /api/audit?...` | | network log, newest first (`AuditQuery`) |
//! | `GET /api/host/registries` | | policy and variables for this host's own package registries |
//! | `GET /api/policies` | | standing policies: in force, broken |
//! | `POST /api/policies/reload` | | the same, after the gateway looked at its files |
//! | `GET /api/policies/{key}/versions`, `.../versions/{n}` | | a policy's versions, newest first; one with its texts |
//! | `PUT /api/policies/{key}` | `Texts` | the version in force; 422 with `policy` problems |
//! | `POST /api/policies/{key}` | `Change` | the version in force, a new one |
//! | `POST /api/policy/check` (`?registries=host`) | YAML text | `{"problems": [...]}` |
//!
//! Errors are `application/problem+json` (RFC 9457).
mod audit;
mod host;
mod input;
mod people;
mod policies;
mod policy;
mod runs;
mod stream;

use super::App;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
pub use people::LoginAddress;
pub use policies::{Change, Texts};
pub use policy::Checked;
pub use runs::Message;

/// Largest body, in bytes: a run request carries policies, turns and files.
const BODY_LIMIT: usize = 8 << 20;

/// Routes for everybody who is logged in.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/api/me", get(people::me))
        .route("/api/runs", get(runs::list).post(runs::start))
        .route("/api/runs/{id}", get(runs::get))
        .route("/api/runs/{id}/messages", post(runs::say))
        .route("/api/runs/{id}/stop", post(runs::stop))
        .route("/api/runs/{id}/entries", get(stream::past))
        .route("/api/runs/{id}/events", get(stream::events))
        .route("/api/audit", get(audit::search))
        .route("/api/host/registries", get(host::registries))
        .route("/api/policies", get(policies::list))
        .route("/api/policies/reload", post(policies::reload))
        .route(
            "/api/policies/{*key}",
            get(policies::look).put(policies::publish).post(policies::change),
        )
        .route("/api/policy/check", post(policy::check))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// Routes for the owner of the socket alone.
pub(super) fn owner_routes() -> Router<App> {
    Router::new().route("/api/login-addresses", post(people::address))
}

async fn healthz() -> axum::Json<serde_json::Value> {
    axum::Json(serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
    }))
}
