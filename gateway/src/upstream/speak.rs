//! HTTP on a connection that was just opened, and the wait for an answer's head.
use super::UpstreamFault;
use super::pool::{Connection, Streams};
use super::settings::settings;
use crate::ledger::Traffic;
use crate::metrics::path::UpstreamOpen;
use crate::payload::Body;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// Window and frames towards an HTTP/2 upstream.
const HTTP2_WINDOW: u32 = 1 << 20;

/// A request that got no answer; `message` is there when nothing of it left.
pub(super) struct Unsent {
    pub(super) fault: UpstreamFault,
    pub(super) message: Option<(Parts, Body)>,
}

/// Waits for the answer's head. The limit is for silence: while the request's body moves, nobody is late.
pub(super) async fn first_byte<F>(
    limit: Duration,
    traffic: &Traffic,
    sending: F,
) -> Result<Response<Incoming>, Unsent>
where
    F: Future<Output = Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<Body>>>>,
{
    let mut sending = std::pin::pin!(sending);
    loop {
        let before = traffic.bytes_out.load(Ordering::Relaxed);
        match timeout(limit, &mut sending).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(mut error)) => {
                let message = error.take_message().map(Request::into_parts);
                return Err(Unsent {
                    fault: UpstreamFault::http(error.error()),
                    message,
                });
            }
            // A long upload is no silence.
            Err(_) if traffic.bytes_out.load(Ordering::Relaxed) > before => {}
            Err(_) => {
                return Err(Unsent {
                    fault: UpstreamFault::AnswerTimeout(limit),
                    message: None,
                });
            }
        }
    }
}

/// Speaks HTTP/1.1 on a fresh connection.
pub(super) async fn http1(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    address: Option<SocketAddr>,
    open: UpstreamOpen,
) -> Result<Connection, UpstreamFault> {
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| UpstreamFault::http(&error))?;
    tokio::spawn(async move {
        let _open = open;
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "an upstream connection ended");
        }
    });
    Ok(Connection::Http1 { sender, address })
}

/// Speaks HTTP/2 on a fresh connection.
pub(super) async fn http2(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    address: Option<SocketAddr>,
    open: UpstreamOpen,
) -> Result<Connection, UpstreamFault> {
    let (stream, extended) = settings(stream);
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW * 4)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| UpstreamFault::http(&error))?;
    tokio::spawn(async move {
        let _open = open;
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an upstream connection ended");
        }
    });
    let streams = Streams { sender, extended };
    Ok(Connection::Http2 { streams, address })
}
