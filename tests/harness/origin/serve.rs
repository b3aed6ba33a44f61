//! The origin's HTTP side: who may push, which file, what is written into its log.
use crate::cgi::{self, Answer};
use crate::identity::Identity;
use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// One origin.
pub(crate) struct Origin {
    dir: PathBuf,
    files: Option<PathBuf>,
    token: String,
    log: Mutex<std::fs::File>,
    log_file: PathBuf,
}

impl Origin {
    pub(crate) fn new(arguments: &crate::Arguments, identity: &Identity) -> anyhow::Result<Arc<Self>> {
        let log_file = arguments.dir.canonicalize()?.join("origin.log");
        let log = std::fs::File::create(&log_file)?;
        Ok(Arc::new(Self {
            dir: arguments.dir.canonicalize()?,
            files: arguments.files.as_deref().map(Path::canonicalize).transpose()?,
            token: identity.token.clone(),
            log: Mutex::new(log),
            log_file,
        }))
    }

    /// Where each request is written down, one JSON line each, with the credential as it arrived.
    pub(crate) fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// Serves until the listener fails.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> anyhow::Result<()> {
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        loop {
            let (stream, _) = listener.accept().await?;
            let (acceptor, origin) = (acceptor.clone(), self.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = hyper::service::service_fn(move |request| {
                    let origin = origin.clone();
                    async move { Ok::<_, std::convert::Infallible>(origin.answer(request).await) }
                });
                // A client that breaks off is the client's affair; its request stands in the log.
                drop(
                    hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let result = self.route(request).await;
        result.unwrap_or_else(|error| text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}\n")))
    }

    async fn route(&self, request: Request<Incoming>) -> anyhow::Result<Answer> {
        let (head, body) = request.into_parts();
        let credential = credential(&head);
        self.write_down(&head, credential.as_deref())?;
        let path = head.uri.path();
        if path == "/echo" {
            let said = body.collect().await?.to_bytes();
            let seen: Vec<String> = head.headers.iter().map(|(n, v)| format!("{n}: {v:?}")).collect();
            let text_seen = format!("{}\n\n{}", seen.join("\n"), String::from_utf8_lossy(&said));
            return Ok(text(StatusCode::OK, &text_seen));
        }
        if let Some(name) = path.strip_prefix("/files/") {
            return self.file(name);
        }
        let pushes = path.ends_with("/git-receive-pack")
            || head
                .uri
                .query()
                .is_some_and(|query| query.contains("service=git-receive-pack"));
        let trusted = credential.as_deref() == Some(self.token.as_str());
        if pushes && !trusted {
            let mut refusal = text(StatusCode::UNAUTHORIZED, "a push needs the token\n");
            let challenge = header::HeaderValue::from_static("Basic realm=\"origin\"");
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            return Ok(refusal);
        }
        cgi::git_backend(&self.dir, &head, body, trusted.then_some("agent")).await
    }

    fn file(&self, name: &str) -> anyhow::Result<Answer> {
        let plain = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let found = self
            .files
            .as_ref()
            .filter(|_| plain && !name.starts_with('.'))
            .map(|files| files.join(name));
        match found.map(std::fs::read_to_string) {
            Some(Ok(content)) => Ok(text(StatusCode::OK, &content)),
            _ => Ok(text(StatusCode::NOT_FOUND, "no such file\n")),
        }
    }

    fn write_down(&self, head: &http::request::Parts, credential: Option<&str>) -> anyhow::Result<()> {
        use std::io::Write;
        let host = head
            .uri
            .host()
            .or_else(|| head.headers.get("host").and_then(|value| value.to_str().ok()));
        let line = serde_json::json!({
            "host": host, "method": head.method.as_str(), "path": head.uri.path(),
            "query": head.uri.query(), "credential": credential,
        });
        let mut log = self
            .log
            .lock()
            .map_err(|_| anyhow::anyhow!("the log is poisoned"))?;
        Ok(writeln!(log, "{line}")?)
    }
}

/// The password of Basic, or the token of Bearer.
fn credential(head: &http::request::Parts) -> Option<String> {
    let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(rest.trim())
        .ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

fn text(status: StatusCode, content: &str) -> Answer {
    let body = Full::new(Bytes::from(content.to_owned())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed());
    *answer.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}
