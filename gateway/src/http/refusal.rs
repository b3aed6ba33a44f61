//! Answers that the gateway gives itself: problem documents (RFC 9457) that a tool and its user can read.
use crate::payload::{Body, empty_body};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt, Full};
use sallyport_policy::Refusal;
use serde_json::{Map, Value, json};

/// RFC 9209.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// The decision's id, for tools that show headers only.
const DECISION: HeaderName = HeaderName::from_static("x-sallyport-decision");

/// An answer of the gateway's own.
#[derive(Debug)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// Short name of the kind of problem.
    pub title: &'static str,
    /// What is wrong and what to do, one or two sentences.
    pub detail: String,
    /// Error type of RFC 9209 section 2.3.
    pub error: &'static str,
    /// Id of the exchange's record.
    pub id: String,
    /// The policy's words, where a policy refused.
    pub refusal: Option<Refusal>,
    /// Whether the connection must end after this answer (HTTP/1 only).
    pub close: bool,
    /// `Retry-After` in seconds, where it is known when the same would pass.
    pub retry_after_s: Option<u64>,
}

impl Problem {
    /// The answer for a request with this method and these headers. `HEAD` gets the same head without a body.
    pub fn respond(&self, method: &Method, asked: &HeaderMap) -> Response<Body> {
        let (content_type, text) = match Reader::of(asked) {
            Reader::Git => ("text/plain; charset=utf-8", self.plain()),
            Reader::GitLfs => ("application/vnd.git-lfs+json", self.document()),
            Reader::Other => ("application/problem+json", self.document()),
        };
        let mut response = self.answer((self.status, content_type), text.into());
        if method == Method::HEAD {
            *response.body_mut() = empty_body();
        }
        response
    }

    /// An answer with this status, media type and body, and the fields that every answer of the gateway's own has.
    pub fn answer(&self, (status, content_type): (StatusCode, &'static str), body: Bytes) -> Response<Body> {
        let length = body.len();
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(value) = HeaderValue::try_from(self.proxy_status()) {
            headers.insert(PROXY_STATUS, value);
        }
        if let Ok(value) = HeaderValue::try_from(self.id.as_str()) {
            headers.insert(DECISION, value);
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Tools that show nothing but the status line still name the decision.
        if status == self.status
            && let Ok(phrase) = hyper::ext::ReasonPhrase::try_from(self.phrase().into_bytes())
        {
            response.extensions_mut().insert(phrase);
        }
        response
    }

    fn phrase(&self) -> String {
        let standard = self.status.canonical_reason().unwrap_or("Refused");
        format!("{standard} (sallyport decision {})", self.id)
    }

    /// `Proxy-Status` with the details as a structured-field string (RFC 8941 section 3.3.3: printable ASCII).
    fn proxy_status(&self) -> String {
        let mut details = String::new();
        for letter in self.detail.chars().take(300) {
            match letter {
                '"' | '\\' => details.extend(['\\', letter]),
                ' '..='~' => details.push(letter),
                _ => details.push('?'),
            }
        }
        format!("sallyport; error={}; details=\"{details}\"", self.error)
    }

    fn document(&self) -> String {
        let mut document = Map::new();
        document.insert("title".to_owned(), json!(self.title));
        document.insert("status".to_owned(), json!(self.status.as_u16()));
        document.insert("detail".to_owned(), json!(self.detail));
        document.insert("instance".to_owned(), json!(format!("urn:uuid:{}", self.id)));
        document.insert("decision".to_owned(), json!(self.id));
        // npm and others print one member and nothing else of an answer; git-lfs and gh the other.
        document.insert("error".to_owned(), json!(self.detail));
        let message = format!("sallyport: {} (decision {})", self.detail, self.id);
        document.insert("message".to_owned(), json!(message));
        document.insert("proxy_error".to_owned(), json!(self.error));
        if let Some(refusal) = &self.refusal {
            document.insert("rule".to_owned(), json!(refusal.reason.rule));
            document.insert("reason".to_owned(), json!(refusal.reason.text));
            document.insert("remedy".to_owned(), json!(refusal.remedy));
            document.insert("hint".to_owned(), json!(refusal.hint));
        }
        let mut text = Value::Object(document).to_string();
        text.push('\n');
        text
    }

    fn plain(&self) -> String {
        format!("{}: {}\ndecision {}\n", self.title, self.detail, self.id)
    }
}

/// Says of an upstream's own error that it is the upstream's (RFC 9209 section 2.1.4), behind what others on the way said
/// of it; and takes off what would let it pass for ours.
pub fn mark_upstream_error(status: StatusCode, headers: &mut HeaderMap) {
    headers.remove(DECISION);
    if status.is_client_error() || status.is_server_error() {
        let mark = format!("sallyport; received-status={}", status.as_u16());
        if let Ok(mark) = HeaderValue::try_from(mark) {
            headers.append(PROXY_STATUS, mark);
        }
    }
}

/// Programs that show an answer's body in one media type only.
enum Reader {
    /// Plain text.
    Git,
    /// Its own errors (git-lfs, docs/api/batch.md, "Response Errors").
    GitLfs,
    /// Nothing is known of it.
    Other,
}

impl Reader {
    fn of(asked: &HeaderMap) -> Self {
        match asked.get(USER_AGENT).map(HeaderValue::as_bytes) {
            Some(agent) if agent.starts_with(b"git/") => Self::Git,
            Some(agent) if agent.starts_with(b"git-lfs/") => Self::GitLfs,
            _ => Self::Other,
        }
    }
}
