//! Runs: list, start, look at, talk to, stop.
use super::input::{Body, Id, idempotency_key};
use crate::people::Identity;
use crate::runs::{RunRequest, RunSummary};
use crate::web::{ApiError, App};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};

pub(super) async fn list(State(app): State<App>) -> Result<Json<Vec<RunSummary>>, ApiError> {
    Ok(Json(app.runs.list().await?))
}

/// Starts a run for the one who is logged in, whatever the request says of its user.
pub(super) async fn start(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    Body(mut request): Body<RunRequest>,
) -> Result<impl IntoResponse, ApiError> {
    let key = idempotency_key(&headers)?.map(|key| format!("{}/{key}", identity.user));
    request.who.user = identity.user;
    request.who.run.clear();
    request.who.parent_run.clear();
    let run = app.runs.start(request, key).await?;
    let location = [(header::LOCATION, format!("/api/runs/{}", run.id))];
    Ok((StatusCode::CREATED, location, Json(run)))
}

pub(super) async fn get(State(app): State<App>, Id(id): Id<String>) -> Result<Json<RunSummary>, ApiError> {
    Ok(Json(app.runs.get(&id).await?))
}

/// A message to the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Text.
    pub text: String,
}

pub(super) async fn say(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Id(id): Id<String>,
    Body(message): Body<Message>,
) -> Result<StatusCode, ApiError> {
    if message.text.trim().is_empty() {
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the message is empty",
        ));
    }
    app.runs.say(&id, &identity.user, &message.text).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn stop(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Id(id): Id<String>,
) -> Result<StatusCode, ApiError> {
    app.runs.stop(&id, &identity.user).await?;
    Ok(StatusCode::NO_CONTENT)
}
