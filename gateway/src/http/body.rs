//! Answers looked into: values taken out of their bodies through every known content coding.
//!
//! An answer without coding keeps its length, since a placeholder is as long as its value. A coded one is decoded,
//! cleaned and coded again in the same way as it comes; what can be let go when the upstream pauses is flushed, so that
//! streams stay live. Its length and digests are no longer known, and a strong `ETag` becomes a weak one.
//! Not looked into: archives and other formats that compress by themselves, without a content coding.
use super::coding::{CannotLookInside, Coding, Decoder, Encoder, PIECE, codings};
use super::forward;
use super::{Body, Fault};
use crate::ledger::Traffic;
use crate::secret::{Redactor, SessionSecrets};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_RANGE, ETAG, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The secrets of the moment.
pub type Secrets = Arc<dyn Fn() -> Arc<SessionSecrets> + Send + Sync>;

/// A frame is let go when it has this many bytes, whatever else is waiting.
const FRAME: usize = 64 * 1024;

/// Takes the session's values out of an answer's body as it passes; headers are made to fit. Names of what was found go
/// to `traffic`. An answer without a body, or a session without credentials, passes untouched. `secrets` gives those of the
/// moment: an answer may go on for days.
pub fn redacted(
    body: Body,
    headers: &mut HeaderMap,
    secrets: Secrets,
    traffic: Arc<Traffic>,
) -> Result<Body, CannotLookInside> {
    let latest = secrets.clone();
    let Some(redactor) = secrets().redactor_following(move || latest()) else {
        return Ok(body);
    };
    if body.is_end_stream() {
        return Ok(body);
    }
    let codings = codings(headers)?;
    let hint = if codings.is_empty() {
        body.size_hint()
    } else {
        SizeHint::default()
    };
    if !codings.is_empty() {
        if headers.contains_key(CONTENT_RANGE) {
            return Err(CannotLookInside(
                "it is a part of a coded body; ask for the whole".to_owned(),
            ));
        }
        recoded(headers);
    }
    let redacted = Redacted {
        body,
        redactor,
        codec: (!codings.is_empty()).then(|| Codec::new(&codings)),
        secrets,
        traffic,
        hint,
        out: BytesMut::new(),
        last: None,
        state: State::Open,
    };
    Ok(redacted.boxed_unsync())
}

/// What no longer holds of a body that is coded anew.
fn recoded(headers: &mut HeaderMap) {
    forward::body_changes(headers);
    if let Some(tag) = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""))
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        headers.insert(ETAG, weak);
    }
}

struct Codec {
    decoder: Decoder,
    encoder: Encoder,
    piece: Vec<u8>,
    /// Something went in that was not flushed.
    inside: bool,
    begun: bool,
}

impl Codec {
    fn new(codings: &[Coding]) -> Self {
        Self {
            decoder: Decoder::new(codings),
            encoder: Encoder::new(codings),
            piece: vec![0; PIECE],
            inside: false,
            begun: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The upstream has ended; what is left goes out.
    Ending,
    Done,
}

/// An answer's body, cleaned.
struct Redacted {
    body: Body,
    redactor: Redactor,
    codec: Option<Codec>,
    secrets: Secrets,
    traffic: Arc<Traffic>,
    hint: SizeHint,
    out: BytesMut,
    /// Trailers, or what broke the body off: comes after everything else.
    last: Option<Result<Frame<Bytes>, Fault>>,
    state: State,
}

impl Redacted {
    /// Decodes and cleans what has come, as far as one frame holds; whether there is more inside.
    fn work(&mut self) -> io::Result<bool> {
        let Some(codec) = &mut self.codec else {
            return Ok(false);
        };
        let mut clean = BytesMut::new();
        while self.out.len() < FRAME {
            let taken = codec.decoder.take(&mut codec.piece)?;
            if taken == 0 {
                return Ok(false);
            }
            self.redactor.push(&codec.piece[..taken], &mut clean);
            codec.inside |= !clean.is_empty();
            codec.encoder.encode(&clean, &mut self.out)?;
            clean.clear();
        }
        Ok(true)
    }

    /// Whether a frame can go on as it came.
    fn passes(&self, frame: &Frame<Bytes>) -> bool {
        let passes = |piece: &Bytes| self.redactor.passes(piece);
        self.codec.is_none() && frame.data_ref().is_some_and(passes)
    }

    fn feed(&mut self, piece: &[u8]) {
        match &mut self.codec {
            Some(codec) => {
                codec.begun |= !piece.is_empty();
                codec.decoder.feed(piece);
            }
            None => self.redactor.push(piece, &mut self.out),
        }
    }

    /// The upstream pauses: what was cleaned goes out now.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.codec {
            Some(codec) if codec.inside => {
                codec.inside = false;
                codec.encoder.flush(&mut self.out)
            }
            _ => Ok(()),
        }
    }

    /// The upstream has ended properly.
    fn finish(&mut self) -> io::Result<()> {
        let mut clean = BytesMut::new();
        self.redactor.finish(&mut clean);
        match &mut self.codec {
            Some(codec) if codec.begun => {
                codec.decoder.finish()?;
                codec.encoder.encode(&clean, &mut self.out)?;
                codec.encoder.finish(&mut self.out)
            }
            _ => {
                self.out.extend_from_slice(&clean);
                Ok(())
            }
        }
    }

    /// What was let go before still goes out, then the fault; what was held back does not.
    fn break_off(&mut self, fault: Fault) {
        self.state = State::Ending;
        self.last = Some(Err(fault));
    }

    fn take_in(&mut self, frame: Option<Result<Frame<Bytes>, Fault>>) {
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => self.feed(&piece),
                Err(frame) => self.end(frame.into_trailers().ok()),
            },
            Some(Err(fault)) => self.break_off(fault),
            None => self.end(None),
        }
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.state = State::Ending;
        if let Err(error) = self.finish() {
            self.last = Some(Err(coded_fault(error)));
            return;
        }
        self.last = trailers.map(|mut trailers| {
            self.traffic
                .redacted((self.secrets)().redact_headers(&mut trailers));
            Ok(Frame::trailers(trailers))
        });
    }
}

fn coded_fault(error: io::Error) -> Fault {
    CannotLookInside(format!("its content coding is broken: {error}")).into()
}

impl http_body::Body for Redacted {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = &mut *self;
        while this.state == State::Open {
            match this.work() {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    this.break_off(coded_fault(error));
                    break;
                }
            }
            if this.codec.is_none() && !this.out.is_empty() || this.out.len() >= FRAME {
                break;
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                // As nearly everything does: nothing is copied.
                Poll::Ready(Some(Ok(frame))) if this.passes(&frame) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(frame) => this.take_in(frame),
                Poll::Pending => {
                    if let Err(error) = this.flush() {
                        this.break_off(coded_fault(error));
                    }
                    if this.out.is_empty() && this.state == State::Open {
                        return Poll::Pending;
                    }
                    break;
                }
            }
        }
        this.traffic.redacted(this.redactor.found().iter().cloned());
        if !this.out.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.out.split().freeze()))));
        }
        if this.state == State::Ending {
            this.state = State::Done;
            return Poll::Ready(this.last.take());
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        match self.state {
            State::Open => false,
            State::Ending => self.out.is_empty() && self.last.is_none(),
            State::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

#[cfg(test)]
mod tests;
