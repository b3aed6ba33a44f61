//! Requests that are signed anew on their way: the body that a signature covers is read before, its signed chunks pass through.
use super::stop::Stop;
use super::upload::Upload;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::payload::Fault;
use crate::secret::sigv4::{ChunkSigner, Presented, Signing};
use crate::secret::{Leak, SessionSecrets};
use crate::upstream::authority_text;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use sallyport_policy::Permit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Reads the whole body where its hash is signed and stands nowhere in the head; it passes unchanged.
pub async fn covered(
    presented: Result<Option<Presented>, Leak>,
    body: &mut Upload,
    limits: &Limits,
) -> Result<Option<Presented>, Stop> {
    let presented = match presented.map_err(Stop::Leak)? {
        Some(presented) if presented.wants_hash() => presented,
        presented => return Ok(presented),
    };
    let (mut pieces, mut count) = (Vec::new(), 0);
    while let Some(piece) = match body.look_further(limits.request_body_idle).await {
        Ok(piece) => piece,
        Err(error) => {
            return Err(Stop::Leak(
                presented.refused(&format!("its body broke off: {error}")),
            ));
        }
    } {
        count += piece.len();
        if count > limits.signed_body_bytes {
            let most = limits.signed_body_bytes;
            return Err(Stop::Leak(presented.refused(&format!(
                "its body is longer than {most} bytes, and no `x-amz-content-sha256` says what is signed"
            ))));
        }
        pieces.push(piece);
    }
    Ok(Some(presented.with_body(pieces.iter().map(|piece| &piece[..]))))
}

/// Signs a head anew, as the last that is done to it. Gives the credential's name, and who signs the chunks of its body.
pub fn anew(
    presented: Option<Presented>,
    (secrets, permit, tls): (&SessionSecrets, &Permit, bool),
    head: &mut Parts,
    limits: &Limits,
) -> Result<Option<(String, Option<ChunkSigner>)>, Stop> {
    let signing = Signing {
        permit,
        tls,
        host: &authority_text(permit.destination(), tls),
        now: jiff::Timestamp::now(),
        chunk_bytes: limits.signed_chunk_bytes,
    };
    secrets
        .sign_anew(presented.as_ref(), &signing, head)
        .map_err(Stop::Leak)
}

/// A request's body, whose signed chunks are signed anew where it has some. Its length stays.
pub struct Signed<B> {
    inner: B,
    signer: Option<ChunkSigner>,
    /// Trailers of HTTP, which come after what is held.
    trailers: Option<Frame<Bytes>>,
}

impl<B: Body> Signed<B> {
    /// Wraps `inner`, as [`anew`] says; the credential is written down as used.
    pub fn new(inner: B, signed: Option<(String, Option<ChunkSigner>)>, ledger: &mut Ledger) -> Self {
        let (credential, signer) = signed.unzip();
        ledger.used(credential.into_iter().collect());
        let signer = signer.flatten();
        Self {
            inner,
            signer,
            trailers: None,
        }
    }
}

impl<B: Body<Data = Bytes, Error = Fault> + Unpin> Body for Signed<B> {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = &mut *self;
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(trailers)));
        }
        loop {
            let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx)).transpose()?;
            let Some(signer) = &mut this.signer else {
                return Poll::Ready(frame.map(Ok));
            };
            let mut out = BytesMut::new();
            let mut ended = frame.is_none() || this.inner.is_end_stream();
            match frame.map(Frame::into_data) {
                Some(Ok(piece)) => signer.push(&piece, &mut out)?,
                Some(Err(trailers)) => {
                    this.trailers = Some(trailers);
                    ended = true;
                }
                None => {}
            }
            if ended {
                signer.finish(&mut out)?;
                this.signer = None;
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.freeze()))));
            }
            if ended {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.signer.is_none() && self.trailers.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
