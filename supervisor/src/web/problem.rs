//! Errors of the API, as problem documents (RFC 9457).
use crate::gateway::GatewayError;
use crate::people::PeopleError;
use crate::registries::RegistriesError;
use crate::runs::RunsError;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sallyport_gateway::control::types::Problem;

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError(pub Problem);

impl ApiError {
    /// From a status and a sentence that says what is wrong and what to do.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self(Problem {
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            policy: Vec::new(),
        })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }
}

impl From<RunsError> for ApiError {
    fn from(error: RunsError) -> Self {
        let status = match &error {
            RunsError::Unknown(_) => StatusCode::NOT_FOUND,
            RunsError::Invalid(_) | RunsError::Policy(_) => StatusCode::UNPROCESSABLE_ENTITY,
            RunsError::Conflict { .. } | RunsError::Ended(_) => StatusCode::CONFLICT,
            RunsError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut answer = Self::new(status, error.to_string());
        if let RunsError::Policy(problems) = error {
            answer.0.title = "Invalid policy".to_owned();
            answer.0.policy = problems;
        }
        answer
    }
}

impl From<GatewayError> for ApiError {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Refused(problem) => Self(problem),
            GatewayError::Unreachable { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            GatewayError::Nonsense(_) => Self::new(StatusCode::BAD_GATEWAY, error.to_string()),
        }
    }
}

impl From<PeopleError> for ApiError {
    fn from(error: PeopleError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<RegistriesError> for ApiError {
    fn from(error: RegistriesError) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// No such route.
pub(super) async fn not_found(uri: http::Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at `{}`", uri.path()),
    )
}

/// The route has no such method.
pub(super) async fn method_not_allowed(method: http::Method, uri: http::Uri) -> ApiError {
    let detail = format!("`{}` has no method {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
