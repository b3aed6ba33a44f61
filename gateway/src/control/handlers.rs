//! The control API's calls, one function each. Errors are problem documents (RFC 9457).
use super::serve::Control;
use super::types::{AccessRequest, AuditQuery, Health, Problem, SessionSpec, SessionView};
use crate::audit::AuditError;
use crate::secret::Value;
use crate::secret::store::StoreError;
use crate::session::SessionError;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use futures_util::{Stream, StreamExt};
use sallyport_policy::Grant;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(super) type Answer<T> = Result<T, Failure>;

/// A problem on its way out.
pub(super) struct Failure(Problem);

impl Failure {
    pub(super) fn new(status: StatusCode, title: &str, detail: impl ToString) -> Self {
        Self(Problem {
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.to_string(),
            policy: Vec::new(),
        })
    }
}

impl Failure {
    /// A policy that cannot be used, with its problems.
    pub(super) fn of_policy(detail: String, problems: Vec<sallyport_policy::Problem>) -> Self {
        let mut failure = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the policy cannot be used",
            detail,
        );
        failure.0.policy = problems;
        failure
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = (header::CONTENT_TYPE, "application/problem+json");
        (status, [kind], serde_json::to_vec(&self.0).unwrap_or_default()).into_response()
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let detail = error.to_string();
        match error {
            SessionError::Unknown(_) => Self::new(StatusCode::NOT_FOUND, "no such session", detail),
            SessionError::Malformed(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the call makes no sense",
                detail,
            ),
            SessionError::Policy { problems, .. } => Self::of_policy(detail, problems),
            SessionError::State(_) => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the state cannot be written",
                detail,
            ),
            SessionError::Audit(error) => error.into(),
            SessionError::Failed(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed", detail)
            }
        }
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the audit log cannot be used",
            error,
        )
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::Name(_) | StoreError::Size { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, "the secret store did not do it", error)
    }
}

pub(super) async fn health(State(control): State<Control>) -> Json<Health> {
    Json(Health {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        proxy: control.proxy.to_string(),
    })
}

/// A session with all that its machine must trust: the authority that it trusts already, which is the current one from now on
/// where it had none, and the gateway's key over ssh.
pub(super) fn view(control: &Control, id: &str) -> Result<SessionView, SessionError> {
    let current = control.authorities.current();
    let trusted = control.sessions.trusting(id, current.fingerprint())?;
    let authority = control.authorities.of(Some(&trusted));
    let view = control.sessions.view(id, authority.certificate_pem())?;
    Ok(SessionView {
        ssh_host_key: control.ssh_host_key.to_string(),
        ..view
    })
}

pub(super) async fn list_sessions(State(control): State<Control>) -> Json<Vec<SessionView>> {
    let all = control.sessions.list();
    let views = all.iter().filter_map(|session| view(&control, session.id()).ok());
    Json(views.collect())
}

pub(super) async fn get_session(
    State(control): State<Control>,
    Path(id): Path<String>,
) -> Answer<Json<SessionView>> {
    Ok(Json(view(&control, &id)?))
}

pub(super) async fn put_session(
    State(control): State<Control>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<SessionView>> {
    let spec: SessionSpec = read(body)?;
    let (sessions, own) = (control.sessions.clone(), id.clone());
    off_thread(move || Ok(sessions.put(&own, spec)?)).await?;
    control.sessions.settled(&id).await;
    control.sessions.record_facts(&id).await?;
    off_thread(move || Ok(Json(view(&control, &id)?))).await
}

pub(super) async fn delete_session(
    State(control): State<Control>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    off_thread(move || Ok(control.sessions.delete(&id)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn access(
    State(control): State<Control>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Response> {
    let request: AccessRequest = read(body)?;
    Ok(Json(control.sessions.access(&id, &request).await?).into_response())
}

pub(super) async fn grant(
    State(control): State<Control>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<StatusCode> {
    let grant: Grant = read(body)?;
    control.sessions.grant(&id, grant).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where a reader of events wants to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Beginning {
    after: Option<u64>,
}

pub(super) async fn events(
    State(control): State<Control>,
    query: Result<Query<Beginning>, QueryRejection>,
    headers: HeaderMap,
) -> Answer<Response> {
    let Query(from) = query.map_err(malformed)?;
    // A browser that comes back says in the header where it was; that is later than the address it was first given.
    let after = match headers.get("last-event-id") {
        Some(id) => {
            let number = id.to_str().ok().and_then(|id| id.parse().ok());
            number.ok_or_else(|| malformed("`Last-Event-ID` is not a record's number"))?
        }
        None => from.after.unwrap_or(0),
    };
    let stream = as_events(control.sink.follow(after)).take_until(control.stop.cancelled_owned());
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
}

/// Ends at the first error; the reader comes back with its last number.
fn as_events(
    records: impl Stream<Item = Result<super::types::AuditRecord, AuditError>>,
) -> impl Stream<Item = Result<Event, axum::Error>> {
    records.map(|record| {
        let record = record.map_err(axum::Error::new)?;
        Event::default()
            .id(record.sequence.to_string())
            .json_data(&record)
    })
}

/// Longest wait for records that are queued.
const FLUSH: std::time::Duration = std::time::Duration::from_secs(1);

pub(super) async fn audit(
    State(control): State<Control>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Answer<Response> {
    let Query(query) = query.map_err(malformed)?;
    // What was queued before the question belongs into the answer; a disk that is slow or full does not hold it up.
    if control.sink.healthy() {
        let _ = tokio::time::timeout(FLUSH, control.sink.flush()).await;
    }
    Ok(Json(control.sink.query(query).await?).into_response())
}

pub(super) async fn list_secrets(State(control): State<Control>) -> Answer<Json<Vec<String>>> {
    Ok(Json(off_thread(move || Ok(control.secrets.names()?)).await?))
}

pub(super) async fn put_secret(
    State(control): State<Control>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<StatusCode> {
    let body = body.map_err(malformed)?;
    // The only copy outside the secret module is wiped where nobody else holds it.
    let value = match body.try_into_mut() {
        Ok(bytes) => Value::new(Vec::from(bytes)),
        Err(bytes) => Value::new(bytes.to_vec()),
    };
    off_thread(move || {
        control.secrets.set(&name, value)?;
        Ok(control.sessions.refresh_secrets()?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete_secret(
    State(control): State<Control>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    off_thread(move || {
        let there = control.secrets.remove(&name)?;
        control.sessions.refresh_secrets()?;
        Ok(there)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn unknown() -> Failure {
    Failure::new(
        StatusCode::NOT_FOUND,
        "no such call",
        "see the control API's description for the calls there are",
    )
}

pub(super) fn malformed(error: impl ToString) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "the call makes no sense", error)
}

pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Answer<T> {
    let body = body.map_err(malformed)?;
    serde_json::from_slice(&body).map_err(|error| malformed(format!("the body: {error}")))
}

pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a call failed inside");
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the gateway failed",
            "see its log",
        )
    })?
}
