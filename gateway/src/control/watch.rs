//! What operators' machines ask: whether it lives, whether it takes work, and its metrics. Nothing here changes anything,
//! nor tells of hosts or people, so that it may be served on a socket of its own.
use super::handlers::{self, Answer, Failure};
use super::serve::Control;
use super::types::Readiness;
use crate::metrics::CONTENT_TYPE;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use std::io;
use tokio::net::TcpListener;

/// `GET /healthz`, `/readyz`, `/metrics`.
pub(super) fn routes() -> Router<Control> {
    Router::new()
        .route("/healthz", get(handlers::health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// Serves these alone, until `control.stop` is cancelled.
pub async fn serve(listener: TcpListener, control: Control) -> io::Result<()> {
    let stop = control.stop.clone();
    let router = routes().fallback(handlers::unknown).with_state(control);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// 200, or 503 with what is in the way.
async fn ready(State(control): State<Control>) -> (StatusCode, Json<Readiness>) {
    let mut faults = Vec::new();
    if control.stop.is_cancelled() {
        faults.push("the gateway is stopping".to_owned());
    }
    if !control.sink.healthy() {
        faults.push("the audit log cannot be written, so nothing passes".to_owned());
    }
    faults.extend(
        control
            .sessions
            .fetched()
            .into_iter()
            .flat_map(|keeper| keeper.faults()),
    );
    let closed = control.standing.view().closed.len();
    if closed > 0 {
        faults.push(format!(
            "nothing passes for {closed} sessions, since a standing policy of theirs cannot be used"
        ));
    }
    let status = match faults.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let ready = faults.is_empty();
    (status, Json(Readiness { ready, faults }))
}

async fn metrics(State(control): State<Control>) -> Answer<Response> {
    let sessions = control.sessions.list().len();
    let text = control
        .metrics
        .render(
            &control.standing.view(),
            sessions,
            control.sessions.fetched().map(|keeper| keeper.counts()),
        )
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed", error))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
