//! Who is logged in, and log-in addresses for the owner.
use crate::people::Identity;
use crate::web::{ApiError, App};
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

/// Who is logged in.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Me {
    /// Account name.
    pub user: String,
}

pub(super) async fn me(Extension(identity): Extension<Identity>) -> Json<Me> {
    Json(Me { user: identity.user })
}

/// An address that logs one browser in, once.
#[derive(Debug, Serialize, Deserialize)]
pub struct LoginAddress {
    /// URL.
    pub address: String,
}

pub(super) async fn address(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<LoginAddress>, ApiError> {
    let token = app.people.issue_address(&identity, jiff::Timestamp::now())?;
    Ok(Json(LoginAddress {
        address: format!("{}/login?token={token}", app.address),
    }))
}
