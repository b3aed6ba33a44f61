//! Checks a policy as it is typed, by the same code that decides.
use super::input::Query;
use crate::web::{ApiError, App};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::StringRejection;
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

/// What the policy may include besides what is shipped.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct With {
    registries: Option<Host>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Host {
    Host,
}

pub(super) async fn check(
    State(app): State<App>,
    Query(with): Query<With>,
    text: Result<String, StringRejection>,
) -> Result<Json<Checked>, ApiError> {
    let text = text.map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text()))?;
    let mut texts = vec![PolicyText {
        name: TYPED.to_owned(),
        text,
    }];
    if let Some(Host::Host) = with.registries {
        texts.push(app.registries.get().await?.policy.clone());
    }
    let checked = tokio::task::spawn_blocking(move || Policy::compile(&texts)).await;
    let problems = match checked {
        Ok(Ok(policy)) => policy.warnings().to_vec(),
        Ok(Err(problems)) => problems,
        Err(error) => {
            let detail = format!("the check broke off: {error}");
            return Err(ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, detail));
        }
    };
    Ok(Json(Checked { problems }))
}
