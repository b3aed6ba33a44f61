//! A request's body whose beginning may be read before it is sent on, and whose rest is read over when nobody wants it.
//!
//! A client that is still sending when its answer comes would lose the answer if the connection were cut at once
//! (RFC 9112 section 9.6), so what is left of the body is taken and forgotten for a while.
use super::pace::InFlight;
use crate::limits::Limits;
use crate::payload::Fault;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The whole reading over lasts no longer than so many pauses.
const PAUSES: u32 = 10;

/// A body with what was read of it already.
pub struct Upload {
    ahead: VecDeque<Frame<Bytes>>,
    /// Until it has ended or this is dropped.
    rest: Option<Incoming>,
    /// What comes now is this body, and no new head.
    held: Option<Arc<InFlight>>,
    /// Its client waits for a word before it sends anything, and nobody has given one.
    unasked: bool,
    linger: Duration,
    linger_bytes: u64,
}

impl Upload {
    /// A body of which nothing was read. Its request is in flight until it has ended or is given up.
    pub fn new(body: Incoming, head: &Parts, limits: &Limits) -> Self {
        let rest = (!body.is_end_stream()).then_some(body);
        Self {
            ahead: VecDeque::new(),
            held: head.extensions.get().cloned().filter(|_| rest.is_some()),
            unasked: head.headers.contains_key(EXPECT),
            rest,
            linger: limits.linger,
            linger_bytes: limits.linger_bytes,
        }
    }

    /// Reads one more piece without taking it; nothing at the end. `idle` bounds the wait.
    pub async fn look_further(&mut self, idle: Duration) -> Result<Option<Bytes>, Fault> {
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        self.unasked = false;
        let Some(frame) = timeout(idle, rest.frame()).await? else {
            self.ended();
            return Ok(None);
        };
        let frame = frame?;
        let piece = frame.data_ref().cloned();
        self.ahead.push_back(frame);
        Ok(piece)
    }

    /// Reads to the end and forgets what came. `idle` bounds each pause; a longer one ends it too.
    pub async fn read_over(&mut self, idle: Duration) {
        while let Ok(Some(_)) = self.look_further(idle).await {
            self.ahead.clear();
        }
    }

    fn ended(&mut self) {
        self.rest = None;
        self.held = None;
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Some(frame) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        self.unasked = false;
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.ended();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Fault::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self
            .ahead
            .iter()
            .filter_map(|frame| frame.data_ref())
            .map(Bytes::len);
        let ahead = ahead.sum::<usize>() as u64;
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.unasked
            && let Some(rest) = self.rest.take().filter(|rest| !rest.is_end_stream())
            && let Ok(runtime) = Handle::try_current()
        {
            let (held, linger, bytes) = (self.held.take(), self.linger, self.linger_bytes);
            runtime.spawn(async move {
                read_over(rest, linger, bytes).await;
                drop(held);
            });
        }
    }
}

/// Ends with the body, with a pause, or with one of the bounds; the connection sees to the rest when the body is dropped.
async fn read_over(mut body: Incoming, pause: Duration, mut bytes: u64) {
    let reading = async {
        while let Ok(Some(Ok(frame))) = timeout(pause, body.frame()).await {
            let count = frame.data_ref().map_or(0, Bytes::len) as u64;
            let Some(left) = bytes.checked_sub(count) else {
                return;
            };
            bytes = left;
        }
    };
    if timeout(pause * PAUSES, reading).await.is_err() {
        tracing::debug!("a client went on sending long after its answer");
    }
}
