//! How long a machine's connection may be in each phase: idle between requests, in the middle of a head, not reading.
//!
//! hyper's own limit for heads also counts the pause between two requests, so that idle connections would end as early as
//! half-sent heads.
use super::Body;
use super::chunk_lines::{BlankAfterSize, ChunkLines};
use super::interim::Interims;
use super::raw_head::RawHead;
use crate::limits::Limits;
use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// What is going on on a connection; shared by its stream and its requests.
#[derive(Debug, Default)]
pub struct Pace {
    requests: AtomicUsize,
    late: AtomicBool,
    connection: AtomicWaker,
    head: Mutex<RawHead>,
    interims: Interims,
}

impl Pace {
    /// Whether the connection was ended because a head did not come to its end.
    pub fn was_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// The head that was read last, as it came (HTTP/1).
    pub fn take_head(&self) -> RawHead {
        std::mem::take(&mut *self.head.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends an interim answer before the next answer (HTTP/1.1).
    pub fn send_interim(&self, status: StatusCode, headers: &HeaderMap) {
        self.interims.push(status, headers);
        self.connection.wake();
    }
}

/// A request that is being served, or a tunnel that is open: no limit of this file runs meanwhile.
#[derive(Debug)]
pub struct InFlight(Arc<Pace>);

impl InFlight {
    /// Begins one.
    pub fn new(pace: &Arc<Pace>) -> Arc<Self> {
        pace.requests.fetch_add(1, Ordering::AcqRel);
        Arc::new(Self(pace.clone()))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The idle time begins now, which the stream learns only when it is asked again.
            self.0.connection.wake();
        }
    }
}

/// A stream with limits.
pub struct Paced<S> {
    inner: S,
    pace: Arc<Pace>,
    /// For a whole head; none for HTTP/2, whose frames are not ours to tell apart.
    head: Option<Duration>,
    head_bytes: usize,
    idle: Duration,
    unread: Duration,
    waiting: Option<(Phase, Pin<Box<Sleep>>)>,
    writing: Option<Pin<Box<Sleep>>>,
    interim: Bytes,
    chunks: ChunkLines,
    /// A body has been read as far as it is right.
    broken: bool,
    /// Something of an answer was written that was not flushed since.
    midway: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
}

impl<S> Paced<S> {
    /// Wraps a stream on which requests are about to come. `heads`: whether single heads are timed (HTTP/1).
    pub fn new(inner: S, pace: Arc<Pace>, heads: bool, limits: &Limits) -> Self {
        Self {
            inner,
            pace,
            head: heads.then_some(limits.head),
            head_bytes: limits.head_bytes,
            idle: limits.idle,
            unread: limits.unread,
            waiting: None,
            writing: None,
            interim: Bytes::new(),
            chunks: ChunkLines::Over,
            broken: false,
            midway: false,
        }
    }

    fn begin(&mut self, phase: Phase, limit: Duration) {
        self.waiting = Some((phase, Box::pin(sleep_until(Instant::now() + limit))));
    }

    /// Bytes came; how many of them may be read. Between two requests they begin a head, and a body may follow.
    fn came(&mut self, piece: &[u8], in_flight: bool) -> usize {
        if in_flight {
            return self.came_of_body(piece);
        }
        let Some(limit) = self.head else {
            return piece.len();
        };
        if !matches!(self.waiting, Some((Phase::Head, _))) {
            self.begin(Phase::Head, limit);
        }
        let pace = self.pace.clone();
        let mut head = pace.head.lock().unwrap_or_else(PoisonError::into_inner);
        let coded = head.push(piece, self.head_bytes).filter(|_| head.is_coded());
        // A body before it that nobody wanted to the end is over.
        self.chunks = coded.map_or(ChunkLines::Over, |_| ChunkLines::begin());
        let body = coded.unwrap_or_default();
        piece.len() - body.len() + self.came_of_body(body)
    }

    fn came_of_body(&mut self, piece: &[u8]) -> usize {
        self.chunks.pass(piece).map_or_else(
            |right| {
                self.broken = true;
                right
            },
            |()| piece.len(),
        )
    }

    /// Nothing comes: how long may that last?
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_none() {
            self.begin(Phase::Idle, self.idle);
        }
        let Some((phase, sleep)) = &mut self.waiting else {
            return Poll::Pending;
        };
        ready!(sleep.as_mut().poll(cx));
        match phase {
            // As if the client had closed: nothing was asked, so nothing went wrong.
            Phase::Idle => Poll::Ready(Ok(())),
            Phase::Head => {
                self.pace.late.store(true, Ordering::Relaxed);
                let text = "the request's head did not come to its end";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.pace.connection.register(cx.waker());
        if let Poll::Ready(Err(error)) = this.interims(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        let in_flight = this.pace.requests.load(Ordering::Acquire) > 0;
        if in_flight {
            this.waiting = None;
        }
        if this.broken {
            return Poll::Ready(Err(BlankAfterSize.into()));
        }
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Pending if !in_flight => this.stalled(cx),
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                let right = this.came(&buf.filled()[before..], in_flight);
                buf.set_filled(before + right);
                match right {
                    0 => Poll::Ready(Err(BlankAfterSize.into())),
                    _ => Poll::Ready(Ok(())),
                }
            }
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    /// Writes the interim answers that wait, where no answer is under way.
    fn interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = false;
        while !self.midway {
            if self.interim.is_empty() {
                match self.pace.interims.take() {
                    Some(interim) => self.interim = interim,
                    None if written => return Pin::new(&mut self.inner).poll_flush(cx),
                    None => return Poll::Ready(Ok(())),
                }
            }
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.interim))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.interim.advance(count),
            }
            written = true;
        }
        self.pace.interims.drop_all();
        Poll::Ready(Ok(()))
    }

    /// The peer does not read: how long may that last?
    fn unread<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let limit = self.unread;
        let sleep = self
            .writing
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self.interims(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_write(cx, buf),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.midway |= written.is_ready();
        self.unread(cx, written)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.connection.register(cx.waker());
        if let Poll::Ready(Err(error)) = self.interims(cx) {
            return Poll::Ready(Err(error));
        }
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.midway &= flushed.is_pending();
        self.unread(cx, flushed)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.unread(cx, shut)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match self.interims(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.midway |= written.is_ready();
        self.unread(cx, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// An answer's body; the request is in flight until it is dropped.
pub struct HeldBody {
    inner: Body,
    _held: Arc<InFlight>,
}

impl HeldBody {
    /// Wraps an answer's body.
    pub fn new(inner: Body, held: Arc<InFlight>) -> Self {
        Self { inner, _held: held }
    }
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = super::Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, super::Fault>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_millis(600);

    fn limits(head: Duration, idle: Duration) -> Limits {
        Limits {
            head,
            idle,
            unread: SHORT,
            ..Limits::default()
        }
    }

    #[tokio::test]
    async fn an_idle_connection_ends_quietly_at_the_idle_limit() {
        let (_client, server) = tokio::io::duplex(64);
        let pace = Arc::new(Pace::default());
        let begun = Instant::now();
        let mut stream = Paced::new(server, pace.clone(), true, &limits(SHORT, LONG));
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(begun.elapsed() >= LONG);
        assert!(!pace.was_late());
    }

    #[tokio::test]
    async fn half_a_head_ends_at_the_heads_limit_however_it_drips() {
        let (mut client, server) = tokio::io::duplex(64);
        let pace = Arc::new(Pace::default());
        let dripping = tokio::spawn(async move {
            let mut drops = tokio::time::interval(SHORT / 5);
            while client.write_all(b"x").await.is_ok() {
                drops.tick().await;
            }
        });
        let mut stream = Paced::new(server, pace.clone(), true, &limits(SHORT, LONG));
        let mut all = Vec::new();
        assert_eq!(
            stream.read_to_end(&mut all).await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(pace.was_late());
        dripping.abort();
    }

    #[tokio::test]
    async fn nothing_is_timed_while_a_request_is_served_and_the_idle_time_begins_after_it() {
        let (mut client, server) = tokio::io::duplex(64);
        let pace = Arc::new(Pace::default());
        let held = InFlight::new(&pace);
        let mut stream = Paced::new(server, pace.clone(), true, &limits(SHORT, SHORT));
        let writing = async {
            tokio::time::timeout(LONG, std::future::pending::<()>())
                .await
                .unwrap_err();
            client.write_all(b"late").await.unwrap();
        };
        let mut bytes = [0; 4];
        let (read, ()) = tokio::join!(stream.read_exact(&mut bytes), writing);
        assert_eq!(read.unwrap(), 4);
        let ending = async {
            tokio::task::yield_now().await;
            drop(held);
        };
        let (ended, ()) = tokio::join!(stream.read(&mut bytes), ending);
        assert_eq!(ended.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let (_client, server) = tokio::io::duplex(4);
        let mut stream = Paced::new(server, Arc::default(), true, &limits(SHORT, SHORT));
        let error = stream.write_all(b"more than four").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
