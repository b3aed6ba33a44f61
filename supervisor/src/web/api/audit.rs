//! The network log, as the gateway keeps it.
use super::input::Query;
use crate::web::{ApiError, App};
use axum::Json;
use axum::extract::State;
use sallyport_gateway::control::types::{AuditQuery, AuditRecord};

pub(super) async fn search(
    State(app): State<App>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Vec<AuditRecord>>, ApiError> {
    Ok(Json(app.door.audit(&query).await?))
}
