//! The control API's calls about standing policies, and the metrics.
use super::handlers::{Answer, Failure, malformed, off_thread, read};
use super::serve::Control;
use super::types::{
    PolicyCheck, PolicyKey, PolicyVersion, Publication, Rollback, StandingPolicies, Withdrawal,
};
use crate::standing::StandingError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use sallyport_policy::Problem;

impl From<StandingError> for Failure {
    fn from(error: StandingError) -> Self {
        let detail = error.to_string();
        let (status, title) = match error {
            StandingError::Broken(problems) => {
                return Self::of_policy(detail, problems);
            }
            StandingError::Audit(error) => return error.into(),
            StandingError::Unknown(_) => (StatusCode::NOT_FOUND, "no such policy"),
            StandingError::Malformed(_) => (StatusCode::UNPROCESSABLE_ENTITY, "the call makes no sense"),
            StandingError::State(_) => (StatusCode::INSUFFICIENT_STORAGE, "the state cannot be written"),
            StandingError::Folder(_) | StandingError::Failed(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed")
            }
        };
        Self::new(status, title, detail)
    }
}

pub(super) async fn list(State(control): State<Control>) -> Json<StandingPolicies> {
    Json(control.standing.view())
}

pub(super) async fn reload(State(control): State<Control>) -> Answer<Json<StandingPolicies>> {
    Ok(Json(control.standing.reload().await?))
}

/// A run's policy below those that stand, before there is a session.
pub(super) async fn check(
    State(control): State<Control>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<Vec<Problem>>> {
    let check: PolicyCheck = read(body)?;
    let work = move || Ok(control.sessions.check(&check.who, &check.policies));
    Ok(Json(off_thread(work).await?))
}

/// `KEY/versions` and `KEY/versions/N`; a key has slashes itself.
pub(super) async fn look(State(control): State<Control>, Path(path): Path<String>) -> Answer<Response> {
    if let Some(key) = path.strip_suffix("/versions") {
        return Ok(Json(control.standing.versions(parse(key)?).await?).into_response());
    }
    let (rest, number) = path.rsplit_once('/').unwrap_or((&path, ""));
    let number = number.parse().ok();
    let Some((key, number)) = rest.strip_suffix("/versions").zip(number) else {
        return Err(super::handlers::unknown().await);
    };
    Ok(Json(control.standing.version(parse(key)?, number).await?).into_response())
}

pub(super) async fn publish(
    State(control): State<Control>,
    Path(path): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<PolicyVersion>> {
    let publication: Publication = read(body)?;
    Ok(Json(control.standing.publish(parse(&path)?, publication).await?))
}

/// `KEY/rollback` and `KEY/withdraw`.
pub(super) async fn change(
    State(control): State<Control>,
    Path(path): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<PolicyVersion>> {
    if let Some(key) = path.strip_suffix("/rollback") {
        let rollback: Rollback = read(body)?;
        return Ok(Json(control.standing.roll_back(parse(key)?, rollback).await?));
    }
    let Some(key) = path.strip_suffix("/withdraw") else {
        return Err(super::handlers::unknown().await);
    };
    let withdrawal: Withdrawal = read(body)?;
    Ok(Json(control.standing.withdraw(parse(key)?, withdrawal).await?))
}

fn parse(key: &str) -> Answer<PolicyKey> {
    PolicyKey::try_from(key.to_owned()).map_err(|why| {
        let shown: String = key.chars().take(128).flat_map(char::escape_debug).collect();
        malformed(format!("`{shown}` names no standing policy: {why}"))
    })
}
