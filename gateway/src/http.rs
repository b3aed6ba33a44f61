//! HTTP/1.1 and HTTP/2 towards the machine: connections, each request of which goes through `exchange`.
pub mod before_answer;
pub mod body;
pub mod chunk_lines;
pub mod client;
pub mod coding;
pub mod deciding;
pub mod exchange;
pub mod fate;
pub mod forward;
pub mod grpc;
pub mod head;
pub mod interim;
pub mod minting;
pub mod outgoing;
pub mod pace;
pub mod push;
pub mod pushed;
pub mod raw_head;
pub mod refusal;
pub mod signing;
pub mod stop;
pub mod track;
pub mod trailers;
pub mod upgrade;
pub mod upload;
pub mod via;
mod waiting;
pub mod websocket;

pub use crate::payload::{Body, Fault, empty_body};

use crate::Shared;
use crate::limits::Limits;
use crate::session::Session;
use crate::stream::Stream;
use head::Doubt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use pace::{HeldBody, InFlight, Pace, Paced};
use sallyport_policy::Destination;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

/// Bytes buffered for one HTTP/2 stream whose client does not read.
const HTTP2_SEND_BUFFER: usize = 256 * 1024;

/// A connection on which requests arrive, all for one destination.
#[derive(Debug)]
pub struct Channel {
    /// Whose it is.
    pub session: Arc<Session>,
    /// Where it comes from, where that tells anything.
    pub client: Option<SocketAddr>,
    /// What was dialled.
    pub destination: Destination,
    /// Whether the machine speaks TLS on it; then TLS is spoken upstream too.
    pub tls: bool,
    /// The span of the connection, below which its exchanges are.
    pub span: Span,
    /// The WebSockets that were begun on it, which live on when HTTP on it has ended.
    pub sockets: TaskTracker,
}

/// The two versions that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// What a peer did wrong on a connection, in words for the record.
#[derive(Debug, thiserror::Error)]
pub enum PeerFault {
    /// Not HTTP, or HTTP that is not served.
    #[error("what came is no HTTP that is served here: {0}")]
    Malformed(hyper::Error),
    /// A head that did not come to its end.
    #[error("a request's head did not come to its end within {0:?}")]
    Slow(Duration),
    /// The connection broke, which needs no record of its own.
    #[error("the connection broke: {0}")]
    Broken(hyper::Error),
}

/// Serves requests on a stream until it ends; once `stop` is cancelled, takes no new ones and ends with those that are open.
pub async fn serve<S, F>(
    limits: &Limits,
    stop: &CancellationToken,
    stream: Stream,
    version: Version,
    service: S,
) -> Result<(), PeerFault>
where
    S: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let pace = Arc::new(Pace::default());
    let serving = pace.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let held = InFlight::new(&serving);
        request.extensions_mut().insert(held.clone());
        // Boxed, so that a connection that waits for its next request keeps no room for it.
        let answering = Box::pin(service(seen(request, version, &serving)));
        async move { Ok::<_, Infallible>(answering.await.map(|body| HeldBody::new(body, held))) }
    });
    let io = TokioIo::new(Paced::new(
        stream,
        pace.clone(),
        version == Version::Http1,
        limits,
    ));
    let ended = match version {
        Version::Http1 => {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_header_size(limits.head_bytes)
                .max_headers(limits.headers)
                .auto_date_header(false)
                .serve_connection(io, service)
                .with_upgrades();
            let mut connection = pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        Version::Http2 => {
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
                .initial_stream_window_size(limits.stream_window)
                .initial_connection_window_size(limits.connection_window)
                .max_send_buf_size(HTTP2_SEND_BUFFER)
                .keep_alive_interval(limits.head)
                .keep_alive_timeout(limits.head)
                .auto_date_header(false)
                // WebSocket (RFC 8441); what it may be is decided request by request.
                .enable_connect_protocol()
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    ended.map_err(|error| match error {
        _ if pace.was_late() => PeerFault::Slow(limits.head),
        error if error.is_parse() => PeerFault::Malformed(error),
        error => PeerFault::Broken(error),
    })
}

/// A request with what hyper does not show of it, and the way for interim answers where there is one.
fn seen(request: Request<Incoming>, version: Version, pace: &Arc<Pace>) -> Request<Incoming> {
    if version == Version::Http2 {
        return request;
    }
    let (mut parts, body) = request.into_parts();
    if let Some(doubt) = pace.take_head().doubt(&parts) {
        parts.extensions.insert(Doubt(doubt));
    }
    if parts.version == http::Version::HTTP_11 {
        parts.extensions.insert(pace.clone());
    }
    Request::from_parts(parts, body)
}

/// Serves the requests of a channel.
pub async fn serve_channel(
    shared: Arc<Shared>,
    stream: Stream,
    version: Version,
    channel: Arc<Channel>,
) -> Result<(), PeerFault> {
    let serving = shared.clone();
    let (limits, stop) = (&shared.limits, &shared.draining);
    serve(limits, stop, stream, version, move |request| {
        let (shared, channel) = (serving.clone(), channel.clone());
        async move { exchange::exchange(&shared, &channel, request).await }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn a_body_is_not_read_as_the_rest_of_a_coded_one_that_nobody_wanted() {
        let (mut client, server) = tokio::io::duplex(4096);
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let seen = [begun.clone(), go_on.clone()];
        let service = move |request: Request<Incoming>| {
            let [begun, go_on] = seen.clone();
            async move {
                begun.notify_one();
                if request.uri().path() == "/unwanted" {
                    go_on.notified().await;
                } else {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(&body[..], b"5 \r\nhello");
                }
                Response::new(empty_body())
            }
        };
        let (limits, stop) = (Limits::default(), CancellationToken::new());
        let serving = serve(&limits, &stop, Stream::new(server), Version::Http1, service);
        let asking = async {
            let mut answer = [0; 256];
            // The first chunk waits to be taken, so that the last is read when the request is over.
            for (head, body) in [
                (
                    "POST /unwanted HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
                    "0\r\n\r\n",
                ),
                (
                    "POST /wanted HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
                    "5 \r\nhello",
                ),
            ] {
                client.write_all(head.as_bytes()).await.unwrap();
                begun.notified().await;
                client.write_all(body.as_bytes()).await.unwrap();
                go_on.notify_one();
                let count = client.read(&mut answer).await.unwrap();
                assert!(answer[..count].starts_with(b"HTTP/1.1 200 OK\r\n"), "{head}");
            }
            drop(client);
        };
        let (served, ()) = tokio::join!(serving, asking);
        served.unwrap();
    }
}
