//! DNS over HTTPS (RFC 8484): the same answers as on port 53, for a session that is known already.
use super::answer::TTL;
use super::lookup;
use crate::Shared;
use crate::payload::{Body, empty_body};
use crate::session::Session;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hickory_proto::op::{Message, ResponseCode};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

/// Path of the service.
pub const PATH: &str = "/dns-query";
/// Media type of queries and answers.
const MESSAGE: &str = "application/dns-message";
/// Longest query in bytes: a name and a few options need far less.
const QUERY: usize = 4096;

/// Whether a request's path is that of this service.
pub fn is_query<B>(request: &Request<B>) -> bool {
    request.uri().path() == PATH
}

/// Answers one request of a session. Always answers; where the session ends before the query is whole, nothing is looked up.
pub async fn answer<B>(shared: &Shared, session: &Session, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let names = shared.doors.of(session).names.clone();
    let query = tokio::select! {
        biased;
        () = session.closed().cancelled() => return plain(StatusCode::FORBIDDEN),
        query = query(request, shared.limits.request_body_idle) => query,
    };
    let query = match query {
        Ok(query) => query,
        Err(status) => return plain(status),
    };
    let Some(message) = lookup::message(shared, session, &names, &query).await else {
        return plain(StatusCode::BAD_REQUEST);
    };
    let Ok(bytes) = message.to_vec() else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE));
    if let Ok(value) = HeaderValue::try_from(freshness(&message)) {
        headers.insert(CACHE_CONTROL, value);
    }
    response
}

/// The query's bytes, or the status that says what is wrong with the request.
async fn query<B>(request: Request<B>, limit: std::time::Duration) -> Result<Vec<u8>, StatusCode>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match *request.method() {
        Method::GET => {
            let query = request.uri().query().unwrap_or_default();
            let encoded = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("dns="))
                .ok_or(StatusCode::BAD_REQUEST)?;
            // Base64 of it is a third longer.
            if encoded.len() > QUERY + QUERY / 3 {
                return Err(StatusCode::URI_TOO_LONG);
            }
            URL_SAFE_NO_PAD
                .decode(encoded)
                .map_err(|_| StatusCode::BAD_REQUEST)
        }
        Method::POST => {
            if request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes) != Some(MESSAGE.as_bytes()) {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            let body = Limited::new(request.into_body(), QUERY);
            let body = std::pin::pin!(body);
            match tokio::time::timeout(limit, body.collect()).await {
                Ok(Ok(whole)) => Ok(whole.to_bytes().to_vec()),
                Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
                Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
            }
        }
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// No longer than any record of the answer lives (RFC 8484 section 5.1); a failure is not kept.
fn freshness(message: &Message) -> String {
    if message.metadata.response_code == ResponseCode::ServFail {
        return "no-store".to_owned();
    }
    let records = message.answers.iter().chain(&message.authorities);
    let seconds = records.map(|record| record.ttl).min().unwrap_or(0).min(TTL);
    format!("private, max-age={seconds}")
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}
