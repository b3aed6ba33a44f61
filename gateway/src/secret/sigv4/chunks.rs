//! Bodies in chunks of AWS's own that each carry a signature: taken apart as they come, checked, and signed anew
//! (S3 API reference, "Transferring Payload in Multiple Chunks" and "with trailing headers").
use super::chain::{Chain, hash, same};
use bytes::{Buf, BytesMut};
use std::fmt;

/// Longest line before a chunk: 16 digits, `;chunk-signature=`, 64 digits.
const LINE: usize = 100;
/// Longest trailers.
const TRAILERS: usize = 16 * 1024;
const SIGNATURE: &str = ";chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature:";

/// Why a body in signed chunks goes no further. The agent's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a body in signed chunks cannot be signed anew: {0}")]
pub struct ChunkFault(String);

/// Signs the chunks of one body anew. Each comes out once it is whole, as long as it was.
pub struct ChunkSigner {
    /// With the placeholder's secret key, and with the real one.
    chains: [Chain; 2],
    has_trailer: bool,
    longest: usize,
    held: BytesMut,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A chunk's line comes, or is not whole.
    Line,
    /// Bytes of the line, bytes of the chunk.
    Chunk(usize, usize),
    /// What follows the last chunk.
    End,
}

impl fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkSigner").finish_non_exhaustive()
    }
}

impl ChunkSigner {
    /// `chains` have signed the request. No chunk is longer than `longest` bytes.
    pub(super) fn new(chains: [Chain; 2], has_trailer: bool, longest: usize) -> Self {
        Self {
            chains,
            has_trailer,
            longest,
            held: BytesMut::new(),
            state: State::Line,
        }
    }

    /// Takes a piece of the body; appends to `out` what is signed anew.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), ChunkFault> {
        self.held.extend_from_slice(piece);
        while self.step(out)? {}
        Ok(())
    }

    /// The end of the body.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), ChunkFault> {
        if self.state != State::End {
            return Err(fault("it ends before its last chunk"));
        }
        let rest = std::mem::take(&mut self.held);
        if !self.has_trailer {
            if !matches!(&rest[..], b"\r\n" | b"") {
                return Err(fault("something follows its last chunk"));
            }
            out.extend_from_slice(&rest);
            return Ok(());
        }
        self.trailer(&rest, out)
    }

    /// One step on; false where more must come first.
    fn step(&mut self, out: &mut BytesMut) -> Result<bool, ChunkFault> {
        match self.state {
            State::Line => {
                let Some(end) = memchr::memmem::find(&self.held[..self.held.len().min(LINE)], b"\r\n") else {
                    return match self.held.len() < LINE {
                        true => Ok(false),
                        false => Err(fault("a chunk's line is too long")),
                    };
                };
                let size = self.size(end)?;
                self.state = State::Chunk(end, size);
                Ok(true)
            }
            State::Chunk(line, size) => {
                // The last one has no bytes, and no line end after them.
                let whole = line + 2 + size + if size == 0 { 0 } else { 2 };
                if self.held.len() < whole {
                    return Ok(false);
                }
                self.chunk((line, size), out)?;
                self.held.advance(whole);
                self.state = if size == 0 { State::End } else { State::Line };
                Ok(true)
            }
            State::End if self.held.len() > TRAILERS => Err(fault("what follows its last chunk is too long")),
            State::End => Ok(false),
        }
    }

    /// The bytes of the chunk whose line ends here.
    fn size(&self, end: usize) -> Result<usize, ChunkFault> {
        let line = std::str::from_utf8(&self.held[..end]).unwrap_or_default();
        let size = line.split_once(SIGNATURE).map_or("", |(size, _)| size);
        let plain = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = usize::from_str_radix(size, 16).ok().filter(|_| plain);
        let size = size.ok_or_else(|| fault("a chunk's line is not `SIZE;chunk-signature=SIGNATURE`"))?;
        if size > self.longest {
            return Err(fault(format!(
                "a chunk has {size} bytes, and at most {} are signed anew: let the client send smaller ones",
                self.longest
            )));
        }
        Ok(size)
    }

    fn chunk(&mut self, (line, size): (usize, usize), out: &mut BytesMut) -> Result<(), ChunkFault> {
        let (head, rest) = self.held.split_at(line);
        let (bytes, after) = rest[2..].split_at(size);
        if size > 0 && !after.starts_with(b"\r\n") {
            return Err(fault("a chunk is longer than its line says"));
        }
        let head = std::str::from_utf8(head).unwrap_or_default();
        let (size, signature) = head.split_once(SIGNATURE).unwrap_or_default();
        let payload = hash(bytes);
        let [theirs, ours] = &mut self.chains;
        if !same(theirs.chunk(&payload), signature) {
            return Err(fault(
                "a chunk's signature is not made with the placeholder of the secret key",
            ));
        }
        for part in [size, SIGNATURE, ours.chunk(&payload), "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(bytes);
        if !bytes.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Lines of `name:value`, the last of which is their signature.
    fn trailer(&mut self, rest: &[u8], out: &mut BytesMut) -> Result<(), ChunkFault> {
        let text = std::str::from_utf8(rest).map_err(|_| fault("its trailer is no text"))?;
        let at = text
            .find(TRAILER_SIGNATURE)
            .ok_or_else(|| fault("its trailer is not signed"))?;
        let (fields, after) = text.split_at(at);
        let after = &after[TRAILER_SIGNATURE.len()..];
        let signature = after.trim_end();
        let mut lines: Vec<String> = Vec::new();
        for line in fields.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| fault("its trailer has a line without `:`"))?;
            lines.push(format!("{}:{}\n", name.trim().to_ascii_lowercase(), value.trim()));
        }
        lines.sort();
        let payload = hash(lines.concat().as_bytes());
        let [theirs, ours] = &mut self.chains;
        if !same(theirs.trailer(&payload), signature) {
            return Err(fault(
                "the trailer's signature is not made with the placeholder of the secret key",
            ));
        }
        let end = &after[signature.len()..];
        for part in [fields, TRAILER_SIGNATURE, ours.trailer(&payload), end] {
            out.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }
}

fn fault(text: impl Into<String>) -> ChunkFault {
    ChunkFault(text.into())
}
