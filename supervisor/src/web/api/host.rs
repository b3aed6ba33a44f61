//! What this host offers to a run: its own package registries.
use crate::registries::HostRegistries;
use crate::web::{ApiError, App};
use axum::Json;
use axum::extract::State;

pub(super) async fn registries(State(app): State<App>) -> Result<Json<HostRegistries>, ApiError> {
    Ok(Json(app.registries.get().await?.clone()))
}
