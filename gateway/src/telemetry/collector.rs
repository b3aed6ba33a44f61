//! One request after the other to the collector: hyper over a connection of its own, TLS where the address says so.
//!
//! The exporter calls from a thread outside the runtime and waits there. What goes wrong is said once, and once that it works again.
use async_trait::async_trait;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest answer that is read, in bytes: what was rejected, in words.
const ANSWER: usize = 64 * 1024;

/// The way to the collector.
#[derive(Debug)]
pub(super) struct Collector {
    place: Place,
    limit: Duration,
    runtime: Handle,
    /// Whether the last request failed.
    down: AtomicBool,
}

#[derive(Debug, Clone)]
struct Place {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
}

impl Collector {
    /// The collector at an address. The error is for people.
    pub(super) fn new(
        address: &Uri,
        roots: RootCertStore,
        limit: Duration,
        runtime: Handle,
    ) -> Result<Self, String> {
        let host = address.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = address.scheme_str() == Some("https");
        let authority = address.authority().map(|authority| authority.as_str());
        let tls = secure
            .then(|| -> Result<_, String> {
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| format!("no certificate can be checked for `{host}`"))?;
                Ok((name, Arc::new(config(roots)?)))
            })
            .transpose()?;
        Ok(Self {
            place: Place {
                port: address.port_u16().unwrap_or(if secure { 443 } else { 80 }),
                authority: HeaderValue::try_from(authority.unwrap_or_default())
                    .map_err(|_| "the collector's address cannot be sent".to_owned())?,
                host,
                tls,
            },
            limit,
            runtime,
            down: AtomicBool::new(false),
        })
    }

    fn tell(&self, outcome: &Result<Response<Bytes>, HttpError>) {
        let fault = match outcome {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        };
        let was_down = self.down.swap(fault.is_some(), Ordering::Relaxed);
        match fault {
            Some(error) if !was_down => {
                tracing::warn!(
                    error,
                    "spans do not reach the collector; they are dropped until it takes them"
                );
            }
            None if was_down => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (place, limit) = (self.place.clone(), self.limit);
        let sending = self.runtime.spawn(async move {
            match timeout(limit, place.send(request)).await {
                Ok(sent) => sent,
                Err(_) => Err(format!("no answer within {limit:?}").into()),
            }
        });
        let outcome = sending.await.unwrap_or_else(|ended| Err(ended.into()));
        self.tell(&outcome);
        outcome
    }
}

impl Place {
    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        match self.tls {
            None => exchange(stream, self.authority, request).await,
            Some((name, config)) => {
                let stream = TlsConnector::from(config).connect(name, stream).await?;
                exchange(stream, self.authority, request).await
            }
        }
    }
}

async fn exchange<S>(
    stream: S,
    authority: HeaderValue,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let carrying = tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = Uri::try_from(path)?;
    parts.headers.insert(HOST, authority);
    let answer = sender
        .send_request(Request::from_parts(parts, Full::new(body)))
        .await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
    carrying.abort();
    Ok(Response::from_parts(parts, body))
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = crate::crypto::provider();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log;
    use std::io::{self, Write};
    use std::sync::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_goes_wrong_is_said_once_and_once_that_it_works_again() {
        let address = "http://collector.test:4318".parse().unwrap();
        let limit = Duration::from_secs(1);
        let collector = Collector::new(&address, RootCertStore::empty(), limit, Handle::current()).unwrap();
        let answered = |status: u16| Ok(Response::builder().status(status).body(Bytes::new()).unwrap());
        let written = Written::default();
        let sink = written.clone();
        let filter = tracing_subscriber::EnvFilter::new("info");
        let layer = log::layer(filter, log::Form::Json, move || sink.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for outcome in [
                answered(200),
                Err("refused".into()),
                answered(503),
                Err("refused".into()),
                answered(200),
                answered(200),
            ] {
                collector.tell(&outcome);
            }
        });
        let said = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(said.contains("refused") && said.contains("again"), "{said}");
    }
}
