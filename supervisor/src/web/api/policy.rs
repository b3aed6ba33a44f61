//! Checks a policy as it is typed, by the same code that decides.
use crate::web::ApiError;
use axum::Json;
use sallyport_policy::{Policy, PolicyText, Problem};
use serde::{Deserialize, Serialize};

/// Name under which a policy typed into the page is reported.
const TYPED: &str = "policy.yaml";

/// What a check found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Checked {
    /// Errors and warnings; empty where the policy is good.
    pub problems: Vec<Problem>,
}

pub(super) async fn check(
    text: Result<String, axum::extract::rejection::StringRejection>,
) -> Result<Json<Checked>, ApiError> {
    let text = text.map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text()))?;
    let policy = PolicyText {
        name: TYPED.to_owned(),
        text,
    };
    let problems = match Policy::compile(&[policy]) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    };
    Ok(Json(Checked { problems }))
}
