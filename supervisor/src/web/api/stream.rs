//! The conversation as server-sent events, resumable by `Last-Event-ID`.
use super::input::{Id, Query, resume_after};
use crate::conversation::{Entry, What};
use crate::runs::RunState;
use crate::web::{ApiError, App};
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::StreamExt as _;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::time::Duration;

/// Silence after which a comment is sent, so that proxies and clients see that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    after: Option<u64>,
}

/// The entries that are there now, as one document.
pub(super) async fn past(
    State(app): State<App>,
    Id(id): Id<String>,
    Query(query): Query<After>,
) -> Result<Json<Vec<Entry>>, ApiError> {
    Ok(Json(app.runs.past(&id, query.after.unwrap_or(0)).await?))
}

/// 204 tells an `EventSource` that nothing will follow, so that it stops coming back.
pub(super) async fn events(
    State(app): State<App>,
    Id(id): Id<String>,
    Query(query): Query<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = resume_after(&headers, query.after)?;
    let run = app.runs.get(&id).await?;
    let mut entries = app.runs.follow(&id, after).await?;
    let first = match run.state {
        RunState::Ended { .. } => match entries.next().await {
            None => return Ok(StatusCode::NO_CONTENT.into_response()),
            some => some,
        },
        _ => None,
    };
    let closing = app.closing.clone();
    let events = futures_util::stream::iter(first)
        .chain(entries)
        .map(event)
        .take_until(closing.cancelled_owned());
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([("x-accel-buffering", "no")], stream).into_response())
}

fn event(entry: Entry) -> Result<Event, axum::Error> {
    let event = Event::default().id(entry.sequence.to_string());
    let event = match entry.what {
        What::Rewind { .. } => event.event("rewind"),
        What::Ended { .. } => event.event("ended"),
        _ => event,
    };
    event.json_data(&entry)
}
