//! Asking a provider for a stream, with limits on silence, and sorting its errors into passing and final ones.
use super::Limits;
use super::sse::{Decoder, SseEvent};
use super::types::{ModelError, Usage};
use futures_util::stream::{BoxStream, StreamExt as _};
use http::{HeaderMap, StatusCode};
use reqwest::header::HeaderValue;
use reqwest::{RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Most characters of a provider's own words in an error.
const WORDS: usize = 400;
/// Most bytes read of an error's body.
const ERROR_BYTES: usize = 64 << 10;
/// Longest wait that a provider may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Where to ask, and with what.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) client: reqwest::Client,
    pub(super) base: String,
    pub(super) key: Option<SecretString>,
    pub(super) limits: Limits,
}

/// The events of one answer.
pub(super) struct Events {
    bytes: BoxStream<'static, Result<bytes::Bytes, reqwest::Error>>,
    decoder: Decoder,
    ready: VecDeque<SseEvent>,
    limits: Limits,
    until: Instant,
    started: bool,
}

impl Caller {
    /// Adds the key as a header that is never shown: `prefix` and the key.
    pub(super) fn signed(
        &self,
        request: RequestBuilder,
        name: &'static str,
        prefix: &str,
    ) -> Result<RequestBuilder, ModelError> {
        let Some(key) = self.key() else { return Ok(request) };
        let mut value = HeaderValue::from_str(&format!("{prefix}{key}")).map_err(|_| {
            ModelError::Final(format!(
                "the key for `{}` has characters that no header may have",
                self.base
            ))
        })?;
        value.set_sensitive(true);
        Ok(request.header(name, value))
    }

    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.expose_secret())
    }

    /// Sends the request and waits for a stream.
    pub(super) async fn open(&self, request: RequestBuilder) -> Result<Events, ModelError> {
        let until = Instant::now() + self.limits.start;
        let response = match timeout_at(until, request.send()).await {
            Err(_) => return Err(self.silent()),
            Ok(Err(fault)) => return Err(self.passing(&without_url(fault))),
            Ok(Ok(response)) => response,
        };
        if response.status() != StatusCode::OK {
            return Err(self.error(response, until).await);
        }
        let kind = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if !kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream")) {
            let kind = kind.unwrap_or("nothing").to_owned();
            return Err(self.passing(&format!("it answered `{kind}` instead of a stream of events")));
        }
        Ok(Events {
            bytes: response.bytes_stream().boxed(),
            decoder: Decoder::default(),
            ready: VecDeque::new(),
            limits: self.limits,
            until,
            started: false,
        })
    }

    fn silent(&self) -> ModelError {
        self.passing(&format!(
            "it said nothing for {} s",
            self.limits.start.as_secs_f32()
        ))
    }

    fn passing(&self, why: &str) -> ModelError {
        ModelError::passing(format!("the model at `{}`: {}", self.base, self.clean(why)))
    }

    /// An error answer: 408, 409, 429 and 5xx pass, the others do not.
    async fn error(&self, response: Response, until: Instant) -> ModelError {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let words = self.clean(&words(response, until).await);
        let why = format!(
            "the model at `{}` answered {}: {words}",
            self.base,
            status.as_u16()
        );
        match status.as_u16() {
            408 | 409 | 429 | 500..=599 => ModelError::Passing {
                why,
                retry_after,
                usage: Usage::default(),
            },
            401 | 403 => ModelError::Final(format!(
                "{why}; the key is missing, wrong, or not allowed to do this"
            )),
            300..=399 => ModelError::Final(format!(
                "{why}; redirects are not followed, give the final base URL"
            )),
            _ => ModelError::Final(why),
        }
    }

    /// A provider's words without the key, control characters and length.
    pub(super) fn clean(&self, words: &str) -> String {
        let words = match self.key() {
            Some(key) if !key.is_empty() => words.replace(key, "[key]"),
            _ => words.to_owned(),
        };
        let mut short: String = words
            .chars()
            .take(WORDS)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if words.chars().nth(WORDS).is_some() {
            short.push('…');
        }
        short
    }
}

impl Events {
    /// The next event; none when the stream ended.
    pub(super) async fn next(&mut self) -> Result<Option<SseEvent>, ModelError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.started = true;
                self.until = Instant::now() + self.limits.idle;
                return Ok(Some(event));
            }
            let bytes = match timeout_at(self.until, self.bytes.next()).await {
                Err(_) => return Err(ModelError::passing(self.silence())),
                Ok(None) => return Ok(None),
                Ok(Some(Err(fault))) => {
                    let why = format!("the model's stream broke off: {}", without_url(fault));
                    return Err(ModelError::passing(why));
                }
                Ok(Some(Ok(bytes))) => bytes,
            };
            self.ready
                .extend(self.decoder.push(&bytes).map_err(ModelError::passing)?);
        }
    }

    fn silence(&self) -> String {
        let (when, limit) = if self.started {
            ("in the middle of its answer", self.limits.idle)
        } else {
            ("before its answer began", self.limits.start)
        };
        format!("the model said nothing for {} s {when}", limit.as_secs_f32())
    }
}

/// Cause of a network fault, innermost last. URLs may carry what people put into them.
fn without_url(fault: reqwest::Error) -> String {
    let fault = fault.without_url();
    let mut text = fault.to_string();
    let mut source = std::error::Error::source(&fault);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// `retry-after` in seconds (RFC 9110, 10.2.3); dates are not obeyed, the usual backoff is.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// `error.message` of a JSON body, or the body's beginning.
async fn words(response: Response, until: Instant) -> String {
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Ok(Some(Ok(bytes))) = timeout_at(until, stream.next()).await {
        body.extend_from_slice(&bytes);
        if body.len() > ERROR_BYTES {
            break;
        }
    }
    let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    match json
        .as_ref()
        .and_then(|json| json.pointer("/error/message"))
        .and_then(|message| message.as_str())
    {
        Some(message) => message.into(),
        None => String::from_utf8_lossy(&body).trim().into(),
    }
}
