//! What a request's body is looked through for on its way out, and what is put into it.
//!
//! Without anything to put in, what passes is never changed, and a coded body is decoded on the side. Else a coded body is
//! decoded, filled and coded again.
use super::coding::{CannotLookInside, Coding, Decoder, Encoder, Expands, PIECE, codings};
use super::forward;
use crate::secret::fill::Fill;
use crate::secret::{BodyGuard, Leak, SessionSecrets};
use bytes::BytesMut;
use http::HeaderMap;
use sallyport_policy::Permit;
use std::fmt;
use std::io;

/// Looks for values in an outgoing body, also through its content coding, and puts credentials in where there are any for it.
pub struct OutgoingGuard {
    guard: BodyGuard,
    fill: Option<Fill>,
    inside: Inside,
    /// What was decoded last; empty where nothing is.
    piece: Vec<u8>,
    remarks: Vec<String>,
}

/// How an outgoing body is looked at.
enum Inside {
    /// As it stands: the guard lets go what it has seen.
    Plain,
    /// Decoded on the side: a piece goes out when what it decodes to was seen.
    Coded(Decoder),
    /// Said to be coded and is not: seen as it stands, on the side.
    Broken,
    /// Decoded, and coded again as it goes out.
    Recoded(Box<Codec>),
}

struct Codec {
    decoder: Decoder,
    encoder: Encoder,
    /// Something was decoded.
    begun: bool,
}

impl fmt::Debug for OutgoingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingGuard")
            .field("guard", &self.guard)
            .field("fill", &self.fill)
            .finish_non_exhaustive()
    }
}

/// The guard for a request that may be sent, `used` being the credentials that stand in its head, and `bound` the bytes in which
/// unknown secrets are looked for; none where there is nothing to
/// look for. Its headers are made to fit where the body's length may change. A body of an unknown coding is looked at as it
/// stands, with a remark; where a credential may have to be put into it, it cannot pass.
pub fn guard(
    headers: &mut HeaderMap,
    secrets: &SessionSecrets,
    permit: &Permit,
    (used, bound): (&[String], usize),
) -> Result<Option<OutgoingGuard>, CannotLookInside> {
    let Some(guard) = secrets.body_guard_under(permit, bound) else {
        return Ok(None);
    };
    let fill = secrets.fill(permit, headers, used);
    let codings = match codings(headers) {
        Err(cannot) if fill.is_some() => return Err(cannot),
        Ok(codings) if fill.is_some() || guard.changes() => codings,
        _ => return Ok(Some(OutgoingGuard::looking(guard, headers))),
    };
    if !codings.is_empty() || fill.as_ref().is_some_and(|fill| !fill.keeps_length()) {
        forward::body_changes(headers);
    }
    Ok(Some(OutgoingGuard::changing(guard, fill, &codings)))
}

impl OutgoingGuard {
    /// One that changes nothing.
    fn looking(guard: BodyGuard, headers: &HeaderMap) -> Self {
        let (inside, remarks) = match codings(headers) {
            Ok(codings) if codings.is_empty() => (Inside::Plain, Vec::new()),
            Ok(codings) => (Inside::Coded(Decoder::new(&codings)), Vec::new()),
            Err(cannot) => (Inside::Plain, vec![cannot.to_string()]),
        };
        Self::new(guard, None, inside, remarks)
    }

    /// One that puts something in, or something else in the place of a value.
    fn changing(guard: BodyGuard, fill: Option<Fill>, codings: &[Coding]) -> Self {
        let inside = match codings.is_empty() {
            true => Inside::Plain,
            false => Inside::Recoded(Box::new(Codec {
                decoder: Decoder::new(codings),
                encoder: Encoder::new(codings),
                begun: false,
            })),
        };
        Self::new(guard, fill, inside, Vec::new())
    }

    fn new(guard: BodyGuard, fill: Option<Fill>, inside: Inside, remarks: Vec<String>) -> Self {
        let piece = match &inside {
            Inside::Coded(_) | Inside::Recoded(_) => vec![0; PIECE],
            Inside::Plain | Inside::Broken => Vec::new(),
        };
        Self {
            guard,
            fill,
            inside,
            piece,
            remarks,
        }
    }

    /// Whether the body goes out with the length that it came with.
    pub fn keeps_length(&self) -> bool {
        let fills = self.fill.as_ref();
        !matches!(self.inside, Inside::Recoded(_)) && fills.is_none_or(Fill::keeps_length)
    }

    /// Whether the next piece may be sent as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        let unfilled = || self.fill.as_ref().is_none_or(|fill| fill.passes(piece));
        matches!(self.inside, Inside::Plain) && unfilled() && self.guard.passes(piece)
    }

    /// Looks at a piece and appends to `out` what may be sent; the rest is held back until the next call.
    /// At a [`Leak`] the body must be cut: nothing more may be sent.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        match &mut self.inside {
            Inside::Plain => return filled(&mut self.guard, &mut self.fill, piece, out),
            Inside::Recoded(_) => return self.recode(piece, out),
            Inside::Broken => self.guard.push(piece, &mut BytesMut::new())?,
            Inside::Coded(_) => self.look_inside(piece)?,
        }
        out.extend_from_slice(piece);
        Ok(())
    }

    /// The end of the body.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        let mut last = BytesMut::new();
        self.guard.finish(&mut last)?;
        if matches!(self.inside, Inside::Coded(_) | Inside::Broken) {
            return Ok(());
        }
        let mut rest = BytesMut::new();
        match &mut self.fill {
            Some(fill) => {
                fill.push(&last, &mut rest)?;
                fill.finish(&mut rest)?;
            }
            None => rest = last,
        }
        let Inside::Recoded(codec) = &mut self.inside else {
            out.extend_from_slice(&rest);
            return Ok(());
        };
        if !codec.begun {
            return Ok(());
        }
        let Codec { decoder, encoder, .. } = &mut **codec;
        decoder
            .finish()
            .and_then(|()| encoder.encode(&rest, out))
            .and_then(|()| encoder.finish(out))
            .map_err(|error| opaque(&error))
    }

    /// Names of the credentials put in so far.
    pub fn put_in(&self) -> &[String] {
        self.fill.as_ref().map_or(&[], Fill::put_in)
    }

    /// Things worth a note in the log: placeholders seen, what could not be looked into.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.guard.remarks("the body", self.put_in());
        remarks.extend(self.remarks.iter().cloned());
        remarks
    }

    fn recode(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        let Inside::Recoded(codec) = &mut self.inside else {
            return Ok(());
        };
        codec.begun |= !piece.is_empty();
        codec.decoder.feed(piece);
        let mut clean = BytesMut::new();
        loop {
            let taken = codec
                .decoder
                .take(&mut self.piece)
                .map_err(|error| opaque(&error))?;
            if taken == 0 {
                return Ok(());
            }
            filled(&mut self.guard, &mut self.fill, &self.piece[..taken], &mut clean)?;
            codec
                .encoder
                .encode(&clean, out)
                .map_err(|error| opaque(&error))?;
            clean.clear();
        }
    }

    fn look_inside(&mut self, piece: &[u8]) -> Result<(), Leak> {
        let Inside::Coded(decoder) = &mut self.inside else {
            return Ok(());
        };
        decoder.feed(piece);
        let mut seen = BytesMut::new();
        loop {
            match decoder.take(&mut self.piece) {
                Ok(0) => return Ok(()),
                Ok(taken) => self.guard.push(&self.piece[..taken], &mut seen)?,
                Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Expands>()) => {
                    return Err(opaque(&error));
                }
                Err(error) => {
                    self.remarks
                        .push(format!("the request's content coding is broken: {error}"));
                    self.inside = Inside::Broken;
                    return self.guard.push(piece, &mut seen);
                }
            }
            seen.clear();
        }
    }
}

/// Guarded first, then filled: what is put in is no leak.
fn filled(
    guard: &mut BodyGuard,
    fill: &mut Option<Fill>,
    piece: &[u8],
    out: &mut BytesMut,
) -> Result<(), Leak> {
    let Some(fill) = fill else {
        return guard.push(piece, out);
    };
    let mut seen = BytesMut::new();
    guard.push(piece, &mut seen)?;
    fill.push(&seen, out)
}

fn opaque(error: &io::Error) -> Leak {
    Leak::new("", format!("the request's body cannot be looked into: {error}"))
}

#[cfg(test)]
mod tests;
