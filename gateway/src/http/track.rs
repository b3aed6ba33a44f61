//! Bodies on their way: counted, guarded, timed, and their end written down.
use super::fate::{Cut, RequestFate};
use super::outgoing::OutgoingGuard;
use super::pushed::PushGuard;
use super::trailers;
use super::waiting::{Due, IdleTimer};
use crate::ledger::{Ledger, Traffic};
use crate::payload::Fault;
use crate::secret::{Leak, SessionSecrets};
use crate::session::brake::Brake;
use crate::session::quota::Pass;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::ReusableBoxFuture;

/// A read whose answer lasts longer than this is recorded before it ends.
const RECORD_DUE: Duration = Duration::from_secs(1);

/// The body stood still for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} idle")]
pub struct Idle(pub &'static str);

/// A request's body: the guard looks at each piece before it is let go.
pub struct RequestBody<B> {
    inner: Pin<Box<B>>,
    guard: Option<OutgoingGuard>,
    /// Bytes to come, where the length is known.
    left: Option<u64>,
    pushed: Option<PushGuard>,
    pass: Option<Arc<Pass>>,
    brake: Brake,
    fate: RequestFate,
    traffic: Arc<Traffic>,
    idle: IdleTimer,
    gate: Option<ReusableBoxFuture<'static, ()>>,
    hint: SizeHint,
    trailers: Option<Frame<Bytes>>,
    secrets: Option<Arc<SessionSecrets>>,
    done: bool,
}

impl<B: Body<Data = Bytes>> RequestBody<B> {
    /// Wraps `inner`; `idle` bounds the pause between two pieces.
    pub fn new(
        inner: B,
        guard: Option<OutgoingGuard>,
        traffic: Arc<Traffic>,
        idle: Duration,
    ) -> (Self, RequestFate) {
        let fate = RequestFate::default();
        let done = inner.is_end_stream();
        let hint = match guard.as_ref().is_none_or(OutgoingGuard::keeps_length) {
            true => inner.size_hint(),
            false => SizeHint::default(),
        };
        let body = Self {
            left: inner.size_hint().exact(),
            inner: Box::pin(inner),
            guard,
            pushed: None,
            pass: None,
            brake: Brake::default(),
            fate: fate.clone(),
            traffic,
            idle: IdleTimer::new(idle),
            gate: None,
            hint,
            trailers: None,
            secrets: None,
            done,
        };
        (body, fate)
    }

    /// Holds the body back until `open` turns true or is dropped, or `limit` is over (RFC 9110 section 10.1.1: the
    /// upstream's word on `Expect: 100-continue` comes first).
    pub fn wait_for(mut self, mut open: watch::Receiver<bool>, limit: Duration) -> Self {
        self.gate = Some(ReusableBoxFuture::new(async move {
            // Both outcomes open the gate: the word came, or nobody will give it any more.
            let _word = tokio::time::timeout(limit, open.wait_for(|open| *open)).await;
        }));
        self
    }

    /// Looks into what a push brings, too.
    pub fn looking_into(mut self, pushed: Option<PushGuard>) -> Self {
        self.pushed = pushed;
        self
    }

    /// Keeps the body within its rules' bounds; what it is a part of is under way until the body has ended too.
    pub fn within(mut self, pass: Arc<Pass>) -> Self {
        self.pass = (!self.done).then_some(pass);
        self
    }

    /// Looks for these in the trailers too.
    pub fn guarding_trailers(mut self, secrets: Arc<SessionSecrets>) -> Self {
        self.secrets = Some(secrets);
        self
    }

    fn look_at(&self, end: &Frame<Bytes>) -> Result<(), Cut> {
        let Some(fields) = end.trailers_ref() else {
            return Ok(());
        };
        if let Some(name) = trailers::misplaced(fields) {
            return Err(Cut::Trailer(name.to_string()));
        }
        match &self.secrets {
            Some(secrets) => trailers::guard(fields, secrets).map_err(Cut::Leak),
            None => Ok(()),
        }
    }

    /// Whether a piece goes on as it is; else what of it does is in `out`. After the last one nobody asks for the end any more.
    fn see(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<bool, Leak> {
        self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
        let Some(guard) = &mut self.guard else {
            return Ok(true);
        };
        let as_it_is = guard.passes(piece);
        if !as_it_is {
            let seen = guard.push(piece, out);
            self.traffic.used(guard.put_in());
            seen?;
        }
        if self.left == Some(0) {
            self.see_end(out)?;
        }
        Ok(as_it_is)
    }

    fn see_end(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        let Some(mut guard) = self.guard.take() else {
            return Ok(());
        };
        let finished = guard.finish(out);
        self.traffic.used(guard.put_in());
        self.traffic.remark(guard.remarks());
        finished
    }

    fn let_go(&mut self, piece: Bytes) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Some(Err(exceeded)) = self.pass.as_ref().map(|pass| pass.send(piece.len())) {
            return self.stop(Cut::Limit(exceeded));
        }
        if let Some(pass) = &self.pass {
            self.brake.passed(pass, piece.len());
        }
        self.traffic
            .bytes_out
            .fetch_add(piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Whether a piece of a push must not be sent on.
    fn withholds(&mut self, piece: &[u8]) -> bool {
        let pushed = self.pushed.as_mut();
        pushed.is_some_and(|pushed| pushed.withholds(piece))
    }

    fn stop(&mut self, cut: Cut) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        self.finish();
        self.traffic.remark([cut.to_string()]);
        self.fate.met(cut.clone());
        Poll::Ready(Some(Err(cut.into())))
    }

    fn finish(&mut self) {
        self.done = true;
        self.pass = None;
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Fault>,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = &mut *self;
        if let Some(trailers) = this.trailers.take() {
            this.finish();
            return Poll::Ready(Some(Ok(trailers)));
        }
        if this.done {
            return Poll::Ready(None);
        }
        if let Some(gate) = &mut this.gate {
            ready!(gate.poll(cx));
            this.gate = None;
        }
        ready!(this.brake.poll(cx));
        loop {
            let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) else {
                ready!(this.idle.poll(cx));
                this.finish();
                return Poll::Ready(Some(Err(Idle("the machine").into())));
            };
            this.idle.moved();
            let mut out = BytesMut::new();
            let end = match frame {
                Some(Err(error)) => {
                    this.finish();
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if this.withholds(&piece) => continue,
                    Ok(piece) => match (this.see(&piece, &mut out), &mut this.pushed) {
                        (Ok(true), _) => return this.let_go(piece),
                        (Ok(false), _) if out.is_empty() && this.guard.is_some() => continue,
                        (Ok(false), _) => return this.let_go(out.freeze()),
                        (Err(leak), None) => return this.stop(Cut::Leak(leak)),
                        (Err(leak), Some(pushed)) => {
                            pushed.found(leak);
                            continue;
                        }
                    },
                    Err(trailers) => Some(trailers),
                },
                None => None,
            };
            if let Some(pushed) = this.pushed.take() {
                this.traffic.remark(pushed.remark());
                if let Some(leak) = pushed.finish() {
                    return this.stop(Cut::Pushed(leak));
                }
            }
            if let Err(leak) = this.see_end(&mut out) {
                return this.stop(Cut::Leak(leak));
            }
            if let Some(Err(cut)) = end.as_ref().map(|end| this.look_at(end)) {
                return this.stop(cut);
            }
            return match (out.is_empty(), end) {
                (true, end) => {
                    this.finish();
                    Poll::Ready(end.map(Ok))
                }
                (false, end) => {
                    this.done = end.is_none();
                    this.trailers = end;
                    this.let_go(out.freeze())
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done || (self.guard.is_none() && self.trailers.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// An answer's body, whose end closes the record of the exchange.
pub struct AnswerBody<B> {
    inner: Pin<Box<B>>,
    ledger: Option<Ledger>,
    pass: Option<Arc<Pass>>,
    brake: Brake,
    traffic: Arc<Traffic>,
    idle: IdleTimer,
    /// The first record.
    due: Due,
    hint: SizeHint,
    /// Bytes to come, where the length is known.
    left: Option<u64>,
}

impl<B> AnswerBody<B>
where
    B: Body<Data = Bytes>,
{
    /// Wraps `inner`. `recorded`: a first record is written already.
    pub fn new(inner: B, ledger: Ledger, pass: Arc<Pass>, recorded: bool, idle: Duration) -> Self {
        let hint = inner.size_hint();
        let mut body = Self {
            traffic: ledger.traffic(),
            inner: Box::pin(inner),
            ledger: Some(ledger),
            pass: Some(pass),
            brake: Brake::default(),
            idle: IdleTimer::new(idle),
            due: if recorded {
                Due::default()
            } else {
                Due::after(RECORD_DUE)
            },
            hint,
            left: hint.exact(),
        };
        if body.inner.is_end_stream() {
            body.end("complete");
        }
        body
    }

    /// Writes the first record of an answer that lasts. `waits`: nothing comes at the moment, so that time alone must wake.
    fn note_when_due(&mut self, cx: &mut Context<'_>, waits: bool) {
        if self.due.came(cx, waits)
            && let Some(ledger) = &self.ledger
        {
            ledger.note_open();
        }
    }

    fn end(&mut self, ending: &str) {
        self.due = Due::default();
        self.pass = None;
        if let Some(ledger) = self.ledger.take() {
            ledger.end(ending);
        }
    }
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Fault>,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = &mut *self;
        if this.brake.poll(cx).is_pending() {
            this.note_when_due(cx, true);
            return Poll::Pending;
        }
        let frame = this.inner.as_mut().poll_frame(cx);
        this.note_when_due(cx, frame.is_pending());
        let Poll::Ready(frame) = frame else {
            ready!(this.idle.poll(cx));
            this.end("incomplete: upstream idle");
            return Poll::Ready(Some(Err(Idle("upstream").into())));
        };
        this.idle.moved();
        match frame {
            Some(Ok(mut frame)) => {
                if let Some(fields) = frame.trailers_mut() {
                    trailers::strip(fields);
                }
                if let Some(piece) = frame.data_ref() {
                    if let Some(Err(exceeded)) = this.pass.as_ref().map(|pass| pass.receive(piece.len())) {
                        this.end(&format!("incomplete: {exceeded}"));
                        return Poll::Ready(Some(Err(exceeded.into())));
                    }
                    if let Some(pass) = &this.pass {
                        this.brake.passed(pass, piece.len());
                    }
                    let count = piece.len() as u64;
                    this.traffic.bytes_in.fetch_add(count, Ordering::Relaxed);
                    this.left = this.left.map(|left| left.saturating_sub(count));
                }
                // With a known length nobody asks for the end once the last byte is there.
                if this.left == Some(0) || this.inner.is_end_stream() {
                    this.end("complete");
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let error = error.into();
                this.end(&format!("incomplete: {error}"));
                Poll::Ready(Some(Err(error)))
            }
            None => {
                this.end("complete");
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}
