//! The calls over the gateway's two unix sockets. One connection for each call: the gateway may be restarted any time.
use super::{Door, GatewayError, events};
use crate::machine::Attachment;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, Handover, HandoverAnswer, Health, ListenerKind,
    PolicyCheck, Problem, SessionSpec, SessionView,
};
use sallyport_policy::Grant;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Interest};
use tokio::net::UnixStream;

/// A call must be answered within this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// An answer at most, in bytes.
const ANSWER: usize = 32 << 20;
/// Descriptors that go in one hand-over at most; the gateway takes no more.
const MOST_DESCRIPTORS: usize = 16;

/// Calls a gateway on this host.
#[derive(Debug, Clone)]
pub struct Client {
    control: PathBuf,
    handover: PathBuf,
}

impl Client {
    /// By the paths of the control socket and of the hand-over socket. Nothing is opened yet.
    pub fn new(control: impl Into<PathBuf>, handover: impl Into<PathBuf>) -> Self {
        Self {
            control: control.into(),
            handover: handover.into(),
        }
    }

    /// Adds a grant that a person gave.
    pub async fn grant(&self, session: &str, grant: &Grant) -> Result<(), GatewayError> {
        let path = format!("/v1/sessions/{}/grants", segment(session));
        self.call(Method::POST, &path, Some(json(grant)?)).await.map(drop)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, GatewayError> {
        parse(&self.call(Method::GET, path, None).await?)
    }

    /// One call; the answer's body where the gateway said yes.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Bytes, GatewayError> {
        let whole = async {
            let response = self.send(method, path, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER).collect().await;
            let body = body
                .map_err(|error| self.unreachable(error.to_string()))?
                .to_bytes();
            if status.is_success() {
                Ok(body)
            } else {
                Err(refusal(status, &body))
            }
        };
        let late = |_| self.unreachable(format!("no answer within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, whole).await.map_err(late)?
    }

    /// Sends a request; the answer's head. Its connection lives on with the body.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, GatewayError> {
        let failed = |error: hyper::Error| self.unreachable(error.to_string());
        let stream = UnixStream::connect(&self.control)
            .await
            .map_err(|error| self.unreachable(error.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        tokio::spawn(async move {
            // Its error is the request's error, which the caller gets.
            let _ended = connection.await;
        });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "gateway")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| {
                GatewayError::Nonsense(format!("the call to `{path}` cannot be made: {error}"))
            })?;
        sender.send_request(request).await.map_err(failed)
    }

    fn unreachable(&self, why: String) -> GatewayError {
        GatewayError::Unreachable {
            socket: self.control.display().to_string(),
            why,
        }
    }

    /// Sends the announcing line with the descriptors; the gateway's answer.
    async fn announce(&self, line: &[u8], attachment: &Attachment) -> Result<HandoverAnswer, GatewayError> {
        let failed = |error: std::io::Error| GatewayError::Unreachable {
            socket: self.handover.display().to_string(),
            why: error.to_string(),
        };
        let stream = UnixStream::connect(&self.handover).await.map_err(failed)?;
        let sent = stream
            .async_io(Interest::WRITABLE, || send_line(&stream, line, attachment))
            .await;
        if sent.map_err(failed)? != line.len() {
            return Err(failed(std::io::ErrorKind::WriteZero.into()));
        }
        let mut answer = Vec::new();
        BufReader::new(stream.take(64 * 1024))
            .read_until(b'\n', &mut answer)
            .await
            .map_err(failed)?;
        parse(&answer)
    }
}

#[async_trait]
impl Door for Client {
    async fn health(&self) -> Result<Health, GatewayError> {
        self.get("/healthz").await
    }

    async fn check_policy(
        &self,
        check: &PolicyCheck,
    ) -> Result<Vec<sallyport_policy::Problem>, GatewayError> {
        let body = Some(json(check)?);
        parse(&self.call(Method::POST, "/v1/policies/check", body).await?)
    }

    async fn put_session(&self, id: &str, spec: &SessionSpec) -> Result<SessionView, GatewayError> {
        let path = format!("/v1/sessions/{}", segment(id));
        parse(&self.call(Method::PUT, &path, Some(json(spec)?)).await?)
    }

    async fn session(&self, id: &str) -> Result<SessionView, GatewayError> {
        self.get(&format!("/v1/sessions/{}", segment(id))).await
    }

    async fn delete_session(&self, id: &str) -> Result<(), GatewayError> {
        self.call(Method::DELETE, &format!("/v1/sessions/{}", segment(id)), None)
            .await
            .map(drop)
    }

    async fn access(&self, id: &str, request: &AccessRequest) -> Result<AccessAnswer, GatewayError> {
        let path = format!("/v1/sessions/{}/access", segment(id));
        parse(&self.call(Method::POST, &path, Some(json(request)?)).await?)
    }

    async fn hand_over(&self, session: &str, attachment: Attachment) -> Result<(), GatewayError> {
        let redirect = attachment.redirect.iter().map(|_| ListenerKind::Redirect);
        let listeners: Vec<_> = redirect
            .chain(attachment.dns.iter().map(|_| ListenerKind::Dns))
            .collect();
        if listeners.len() > MOST_DESCRIPTORS {
            return Err(refused(format!(
                "{} listeners are more than {MOST_DESCRIPTORS}",
                listeners.len()
            )));
        }
        let mut line = json(&Handover {
            session: session.to_owned(),
            listeners,
        })?
        .to_vec();
        line.push(b'\n');
        let answer = tokio::time::timeout(PATIENCE, self.announce(&line, &attachment)).await;
        let late = |_| GatewayError::Unreachable {
            socket: self.handover.display().to_string(),
            why: format!("no answer within {} s", PATIENCE.as_secs()),
        };
        match answer.map_err(late)?? {
            HandoverAnswer::Serving => Ok(()),
            HandoverAnswer::Refused(why) => Err(refused(why)),
        }
    }

    async fn events(
        &self,
        after: u64,
    ) -> Result<BoxStream<'static, Result<AuditRecord, GatewayError>>, GatewayError> {
        let path = format!("/v1/events?after={after}");
        let head = tokio::time::timeout(PATIENCE, self.send(Method::GET, &path, None)).await;
        let response = head.map_err(|_| self.unreachable("no answer".to_owned()))??;
        let status = response.status();
        if !status.is_success() {
            let body = Limited::new(response.into_body(), ANSWER).collect().await;
            let body = body.map_err(|error| self.unreachable(error.to_string()))?;
            return Err(refusal(status, &body.to_bytes()));
        }
        Ok(events::records(
            response.into_body(),
            self.control.display().to_string(),
        ))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, GatewayError> {
        self.get(&format!("/v1/audit?{}", pairs(query)?)).await
    }
}

/// A query's fields as they stand in an address.
fn pairs(query: &AuditQuery) -> Result<String, GatewayError> {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    let fields = serde_json::to_value(query).map_err(|error| GatewayError::Nonsense(error.to_string()))?;
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => drop(pairs.append_pair(name, text)),
            other => drop(pairs.append_pair(name, &other.to_string())),
        }
    }
    Ok(pairs.finish())
}

fn send_line(stream: &UnixStream, line: &[u8], attachment: &Attachment) -> std::io::Result<usize> {
    let descriptors: Vec<_> = attachment
        .redirect
        .iter()
        .chain(&attachment.dns)
        .map(AsFd::as_fd)
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(std::io::Error::other("too many descriptors"));
    }
    Ok(sendmsg(
        stream,
        &[IoSlice::new(line)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?)
}

/// An id as one segment of a path.
fn segment(id: &str) -> String {
    url::form_urlencoded::byte_serialize(id.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

pub(super) fn json(value: &impl Serialize) -> Result<Bytes, GatewayError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| GatewayError::Nonsense(error.to_string()))
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, GatewayError> {
    serde_json::from_slice(body).map_err(|error| GatewayError::Nonsense(error.to_string()))
}

/// What the gateway said no with; where that is no problem document, the status tells what there is to tell.
fn refusal(status: StatusCode, body: &[u8]) -> GatewayError {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => GatewayError::Refused(problem),
        Err(_) => GatewayError::Nonsense(format!("status {status} without a problem document")),
    }
}

fn refused(detail: String) -> GatewayError {
    GatewayError::Refused(Problem {
        title: "the hand-over was refused".to_owned(),
        status: StatusCode::CONFLICT.as_u16(),
        detail,
        policy: Vec::new(),
    })
}
