//! Compressed messages (RFC 7692 section 7.2): taken apart and put together piece by piece, each way with a window of its own.
use super::extension::Coding;
use super::frame::Violation;
use crate::http::coding::is_bomb;
use bytes::{Buf, BytesMut};
use tungstenite::protocol::frame::coding::CloseCode;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

/// What every compressed message is thought to end with, and does not say (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// The largest window, which reads what was written with any smaller one.
const LARGEST: u8 = 15;
/// A deflate stream cannot be written with a smaller one.
const SMALLEST: u8 = 9;
/// As quick as the codings of HTTP are.
const LEVEL: i32 = 4;
/// Compressed bytes taken at once.
const PIECE: usize = 16 * 1024;

/// Takes compressed messages apart.
pub struct Inflater {
    stream: Inflate,
    takeover: bool,
    input: BytesMut,
    consumed: u64,
    produced: u64,
}

impl Inflater {
    /// For the messages of a side that compresses like this.
    pub fn new(coding: Coding) -> Self {
        Self {
            stream: Inflate::new(false, LARGEST),
            takeover: coding.takeover,
            input: BytesMut::new(),
            consumed: 0,
            produced: 0,
        }
    }

    /// Gives it the next bytes of a message.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Gives it the end of a message.
    pub fn feed_end(&mut self) {
        self.input.extend_from_slice(&TAIL);
    }

    /// Takes inflated bytes out; 0 when it needs more.
    pub fn take(&mut self, out: &mut [u8]) -> Result<usize, Violation> {
        loop {
            let before = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .decompress(&self.input, out, InflateFlush::SyncFlush)
                .map_err(|error| {
                    let what = format!("a compressed message cannot be inflated: {}", error.as_str());
                    Violation::new(CloseCode::Invalid, what)
                })?;
            let used = self.stream.total_in() - before.0;
            let made = self.stream.total_out() - before.1;
            self.input.advance(used as usize);
            self.count(used, made)?;
            if status == Status::StreamEnd {
                // A last block may stand within a message (RFC 7692 section 7.2.3.5); a new stream begins after it.
                self.stream.reset(false);
            }
            if made > 0 || used == 0 {
                return Ok(made as usize);
            }
        }
    }

    /// The message is over.
    pub fn finish(&mut self) {
        (self.consumed, self.produced) = (0, 0);
        if !self.takeover {
            self.stream.reset(false);
        }
    }

    fn count(&mut self, used: u64, made: u64) -> Result<(), Violation> {
        self.consumed += used;
        self.produced += made;
        match is_bomb(self.consumed, self.produced) {
            true => Err(Violation::new(
                CloseCode::Size,
                "a compressed message expands without measure",
            )),
            false => Ok(()),
        }
    }
}

/// Puts compressed messages together.
pub struct Deflater {
    stream: Deflate,
    takeover: bool,
    scratch: Vec<u8>,
    /// Something went in that was not flushed.
    inside: bool,
}

impl Deflater {
    /// For a side that reads messages compressed like this; none where its window is too small for a deflate stream to be
    /// written: it gets messages as they are, which is always allowed.
    pub fn new(coding: Coding) -> Option<Self> {
        (coding.window_bits >= SMALLEST).then(|| Self {
            stream: Deflate::new(LEVEL, false, coding.window_bits),
            takeover: coding.takeover,
            scratch: vec![0; PIECE],
            inside: false,
        })
    }

    /// Compresses some bytes of a message; they may stay inside until a flush.
    pub fn push(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        self.inside |= !bytes.is_empty();
        self.run(bytes, DeflateFlush::NoFlush, out)
    }

    /// Lets everything out that went in, so that the other side can inflate it now.
    pub fn flush(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        match std::mem::take(&mut self.inside) {
            true => self.run(&[], DeflateFlush::SyncFlush, out),
            false => Ok(()),
        }
    }

    /// The end of a message. `out`: what was made and not sent yet.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Violation> {
        self.flush(out)?;
        match out.ends_with(&TAIL) {
            true => out.truncate(out.len() - TAIL.len()),
            // All was flushed and sent before: an empty block, but for its tail (RFC 7692 section 7.2.3.6).
            false => out.extend_from_slice(&[0]),
        }
        if !self.takeover {
            self.stream.reset();
        }
        Ok(())
    }

    fn run(&mut self, mut bytes: &[u8], flush: DeflateFlush, out: &mut BytesMut) -> Result<(), Violation> {
        loop {
            let before = (self.stream.total_in(), self.stream.total_out());
            self.stream
                .compress(bytes, &mut self.scratch, flush)
                .map_err(|error| {
                    let what = format!("a message cannot be compressed: {}", error.as_str());
                    Violation::new(CloseCode::Error, what)
                })?;
            let used = self.stream.total_in() - before.0;
            let made = (self.stream.total_out() - before.1) as usize;
            bytes = &bytes[used as usize..];
            out.extend_from_slice(&self.scratch[..made]);
            if made < self.scratch.len() && bytes.is_empty() {
                return Ok(());
            }
        }
    }
}
