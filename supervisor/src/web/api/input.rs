//! Reading requests, so that bad input is answered with a problem document.
use crate::web::ApiError;
use axum::extract::{FromRequest, FromRequestParts};
use http::{HeaderMap, StatusCode};

/// A JSON body.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(ApiError))]
pub(super) struct Body<T>(pub(super) T);

/// The query string.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(super) struct Query<T>(pub(super) T);

/// The variable part of a path.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
pub(super) struct Id<T>(pub(super) T);

/// The `Idempotency-Key` header: 1 to 128 visible ASCII characters.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let usable = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if usable {
        Ok(Some(text.to_owned()))
    } else {
        Err(bad_header("Idempotency-Key", "1 to 128 visible ASCII characters"))
    }
}

/// The sequence after which to go on: the `Last-Event-ID` of a client that comes back, else the query's.
pub(super) fn resume_after(headers: &HeaderMap, query: Option<u64>) -> Result<u64, ApiError> {
    match headers.get("last-event-id") {
        None => Ok(query.unwrap_or(0)),
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad_header("Last-Event-ID", "the id of an event of this stream")),
    }
}

fn bad_header(name: &str, right: &str) -> ApiError {
    ApiError::new(
        StatusCode::BAD_REQUEST,
        format!("the header `{name}` must be {right}"),
    )
}
