//! Standing policies: passed on to the gateway, with the name of the one who is logged in.
use super::input::{Body, Id};
use crate::people::Identity;
use crate::web::{ApiError, App};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use sallyport_gateway::control::types::{
    PolicyKey, PolicyVersion, Publication, Rollback, StandingPolicies, Withdrawal,
};
use sallyport_policy::PolicyText;
use serde::{Deserialize, Serialize};

/// Texts to put in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// The policy first, then what its `include` names.
    pub texts: Vec<PolicyText>,
    /// What is to be said about it.
    #[serde(default)]
    pub note: String,
}

/// What to do with a policy that stands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "do")]
pub enum Change {
    /// Put an old version in force again.
    Rollback {
        /// Its number.
        to: u64,
    },
    /// End it.
    Withdraw {},
}

pub(super) async fn list(State(app): State<App>) -> Result<Json<StandingPolicies>, ApiError> {
    Ok(Json(app.policies.policies().await?))
}

pub(super) async fn reload(State(app): State<App>) -> Result<Json<StandingPolicies>, ApiError> {
    Ok(Json(app.policies.reload_policies().await?))
}

/// `KEY/versions` and `KEY/versions/N`; a key has slashes itself.
pub(super) async fn look(State(app): State<App>, Id(path): Id<String>) -> Result<Response, ApiError> {
    if let Some(named) = path.strip_suffix("/versions") {
        return Ok(Json(app.policies.policy_versions(&key(named)?).await?).into_response());
    }
    let (rest, number) = path.rsplit_once('/').unwrap_or((&path, ""));
    let number = number.parse().ok();
    let Some((named, number)) = rest.strip_suffix("/versions").zip(number) else {
        let detail = "ask for a policy's `/versions`, or for one of them by its number";
        return Err(ApiError::new(StatusCode::NOT_FOUND, detail));
    };
    Ok(Json(app.policies.policy_version(&key(named)?, number).await?).into_response())
}

pub(super) async fn publish(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Id(path): Id<String>,
    Body(texts): Body<Texts>,
) -> Result<Json<PolicyVersion>, ApiError> {
    let publication = Publication {
        texts: texts.texts,
        author: identity.user,
        note: texts.note,
    };
    Ok(Json(
        app.policies.publish_policy(&key(&path)?, &publication).await?,
    ))
}

pub(super) async fn change(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Id(path): Id<String>,
    Body(change): Body<Change>,
) -> Result<Json<PolicyVersion>, ApiError> {
    let (key, author) = (key(&path)?, identity.user);
    let version = match change {
        Change::Rollback { to } => {
            app.policies
                .roll_back_policy(&key, &Rollback { to, author })
                .await
        }
        Change::Withdraw {} => app.policies.withdraw_policy(&key, &Withdrawal { author }).await,
    };
    Ok(Json(version?))
}

fn key(text: &str) -> Result<PolicyKey, ApiError> {
    PolicyKey::try_from(text.to_owned()).map_err(|why| {
        let shown: String = text.chars().take(128).flat_map(char::escape_debug).collect();
        let detail = format!("`{shown}` names no standing policy: {why}");
        ApiError::new(StatusCode::BAD_REQUEST, detail)
    })
}
