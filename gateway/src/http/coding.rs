//! Content codings (RFC 9110 section 8.4.1) as streams: decoded and encoded piece by piece, within bounds.
//!
//! Known: `gzip` (`x-gzip`), `deflate` (zlib, and the raw form that some servers send), `br`, `zstd`, and two of them on
//! top of each other. Bounds: at most two; a zstd window of 8 MiB (RFC 9659); and no piece that expands a layer more than
//! 200 times once that is more than 1 MiB. Memory is that of the windows plus some buffers, whatever the size of the body.
use bytes::{Buf, BytesMut};
use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::core::Level;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::zstd::params::{CParameter, DParameter};
use compression_codecs::{
    BrotliDecoder, BrotliEncoder, DecodeV2, DeflateDecoder, EncodeV2, GzipDecoder, GzipEncoder, ZlibDecoder,
    ZlibEncoder, ZstdDecoder, ZstdEncoder,
};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io;

/// Codings on top of each other that are looked into.
const MOST: usize = 2;
/// Largest zstd window, as a power of two (RFC 9659 section 3).
const ZSTD_WINDOW: u32 = 23;
/// A layer may expand this many times,
const RATIO: u64 = 200;
/// or to this many bytes.
const FLOOR: u64 = 1 << 20;
/// Decoded bytes taken at once.
pub const PIECE: usize = 32 * 1024;

/// One known coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, and RFC 1951 where it is sent under that name.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// A body cannot be looked into, and there are secrets to look for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body cannot be looked into: {0}")]
pub struct CannotLookInside(pub String);

/// A coded body that expands without measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body expands more than {RATIO} times to over {FLOOR} bytes")]
pub struct Expands;

/// Whether a coded stream expanded more than is borne: these bytes went in and came out.
pub fn is_bomb(consumed: u64, produced: u64) -> bool {
    produced > FLOOR && produced > consumed.saturating_mul(RATIO)
}

/// The codings of a message in the order in which they were applied; `identity` is none.
pub fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, CannotLookInside> {
    let mut found = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value
            .to_str()
            .map_err(|_| CannotLookInside("its content coding is no text".to_owned()))?;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name.to_ascii_lowercase().as_str() {
                "identity" => {}
                "gzip" | "x-gzip" => found.push(Coding::Gzip),
                "deflate" => found.push(Coding::Deflate),
                "br" => found.push(Coding::Brotli),
                "zstd" => found.push(Coding::Zstd),
                _ => {
                    let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
                    return Err(CannotLookInside(format!(
                        "content coding `{shown}` is not known here"
                    )));
                }
            }
        }
    }
    if found.len() > MOST {
        return Err(CannotLookInside(format!(
            "it has {} content codings, more than {MOST}",
            found.len()
        )));
    }
    Ok(found)
}

/// Takes a coded stream apart.
pub struct Decoder {
    /// In the order in which they are undone.
    layers: Vec<Layer>,
}

struct Layer {
    coding: Coding,
    decoder: Option<Box<dyn DecodeV2 + Send>>,
    input: BytesMut,
    piece: Vec<u8>,
    consumed: u64,
    produced: u64,
    /// More may come out without anything going in.
    full: bool,
    ended: bool,
}

impl Decoder {
    /// Undoes codings that were applied in this order.
    pub fn new(codings: &[Coding]) -> Self {
        Self {
            layers: codings.iter().rev().map(|coding| Layer::new(*coding)).collect(),
        }
    }

    /// Gives it the next bytes of the stream; take everything out before the next.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(layer) = self.layers.first_mut() {
            layer.input.extend_from_slice(bytes);
        }
    }

    /// Takes decoded bytes out; 0 when it needs more.
    pub fn take(&mut self, out: &mut [u8]) -> io::Result<usize> {
        pull(&mut self.layers, out)
    }

    /// The end of the stream: an error where a layer is not at its own end.
    pub fn finish(&mut self) -> io::Result<()> {
        let torn = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for layer in &mut self.layers {
            if !layer.input.is_empty() {
                return Err(torn());
            }
            let Some(decoder) = layer.decoder.as_mut().filter(|_| !layer.ended) else {
                continue;
            };
            let mut out = WriteBuffer::new_initialized(&mut layer.piece);
            if !decoder.finish(&mut out)? {
                return Err(torn());
            }
        }
        Ok(())
    }
}

fn pull(layers: &mut [Layer], out: &mut [u8]) -> io::Result<usize> {
    let Some((top, below)) = layers.split_last_mut() else {
        return Ok(0);
    };
    loop {
        if top.full {
            let taken = top.drain(out)?;
            if taken > 0 {
                return Ok(taken);
            }
        }
        if top.input.is_empty() || top.is_undecided() {
            if below.is_empty() {
                return Ok(0);
            }
            let mut piece = std::mem::take(&mut top.piece);
            let taken = pull(below, &mut piece);
            top.input
                .extend_from_slice(&piece[..*taken.as_ref().unwrap_or(&0)]);
            top.piece = piece;
            if taken? == 0 {
                return Ok(0);
            }
        }
        let taken = top.decode(out)?;
        if taken > 0 {
            return Ok(taken);
        }
    }
}

impl Layer {
    fn new(coding: Coding) -> Self {
        Self {
            coding,
            decoder: None,
            input: BytesMut::new(),
            piece: vec![0; PIECE],
            consumed: 0,
            produced: 0,
            full: false,
            ended: false,
        }
    }

    /// The first two bytes tell zlib from raw deflate.
    fn is_undecided(&self) -> bool {
        self.coding == Coding::Deflate && self.decoder.is_none() && self.input.len() < 2
    }

    /// Decodes some input. Several members or frames may follow each other in gzip and zstd, and in nothing else.
    fn decode(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let decoder = self
            .decoder
            .get_or_insert_with(|| decoder(self.coding, &self.input));
        if self.ended {
            if !matches!(self.coding, Coding::Gzip | Coding::Zstd) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "bytes after the end of the coded body",
                ));
            }
            decoder.reinit()?;
            self.ended = false;
        }
        let mut input = PartialBuffer::new(&self.input[..]);
        let mut output = WriteBuffer::new_initialized(out);
        self.ended = decoder.decode(&mut input, &mut output)?;
        let (used, made, full) = (
            input.written_len(),
            output.written_len(),
            output.has_no_spare_space(),
        );
        self.input.advance(used);
        if used == 0 && made == 0 && !self.ended {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the coded body stands still",
            ));
        }
        self.full = full && !self.ended;
        self.count(used, made)
    }

    /// Takes out what is still inside; where nothing is, more input is needed.
    fn drain(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(0);
        };
        let mut output = WriteBuffer::new_initialized(out);
        match self.coding {
            // These take an empty input badly, and have a flush for it.
            Coding::Gzip | Coding::Deflate => drop(decoder.flush(&mut output)?),
            // These find their end only so.
            Coding::Brotli | Coding::Zstd => {
                self.ended = decoder.decode(&mut PartialBuffer::new(&[][..]), &mut output)?;
            }
        }
        let (made, full) = (output.written_len(), output.has_no_spare_space());
        self.full = full && !self.ended;
        self.count(0, made)
    }

    fn count(&mut self, used: usize, made: usize) -> io::Result<usize> {
        self.consumed += used as u64;
        self.produced += made as u64;
        if is_bomb(self.consumed, self.produced) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, Expands));
        }
        Ok(made)
    }
}

fn decoder(coding: Coding, beginning: &[u8]) -> Box<dyn DecodeV2 + Send> {
    match coding {
        Coding::Gzip => Box::new(GzipDecoder::new()),
        Coding::Deflate if is_zlib(beginning) => Box::new(ZlibDecoder::new()),
        Coding::Deflate => Box::new(DeflateDecoder::new()),
        Coding::Brotli => Box::new(BrotliDecoder::new()),
        Coding::Zstd => Box::new(ZstdDecoder::new_with_params(&[DParameter::window_log_max(
            ZSTD_WINDOW,
        )])),
    }
}

/// The header of RFC 1950 section 2.2: method 8, and a check that makes a multiple of 31.
fn is_zlib(beginning: &[u8]) -> bool {
    let [first, second, ..] = *beginning else {
        return false;
    };
    first & 15 == 8 && (u16::from(first) << 8 | u16::from(second)) % 31 == 0
}

/// Codes a stream. Quick rather than small: what passes here was coded well once, and is on its last metres.
pub struct Encoder {
    layers: Vec<Box<dyn EncodeV2 + Send>>,
    scratch: Vec<u8>,
}

/// What an encoder is asked to do after some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    Flush,
    Finish,
}

impl Encoder {
    /// Applies codings in this order.
    pub fn new(codings: &[Coding]) -> Self {
        Self {
            layers: codings.iter().map(|coding| encoder(*coding)).collect(),
            scratch: vec![0; PIECE],
        }
    }

    /// Codes some bytes; they may stay inside until a flush.
    pub fn encode(&mut self, bytes: &[u8], out: &mut BytesMut) -> io::Result<()> {
        self.run(bytes, Then::Nothing, out)
    }

    /// Lets everything out that went in, so that the other side can decode it now.
    pub fn flush(&mut self, out: &mut BytesMut) -> io::Result<()> {
        self.run(&[], Then::Flush, out)
    }

    /// Ends the stream.
    pub fn finish(&mut self, out: &mut BytesMut) -> io::Result<()> {
        self.run(&[], Then::Finish, out)
    }

    fn run(&mut self, bytes: &[u8], then: Then, out: &mut BytesMut) -> io::Result<()> {
        let mut bytes = BytesMut::from(bytes);
        for layer in &mut self.layers {
            let mut coded = BytesMut::new();
            let mut input = PartialBuffer::new(&bytes[..]);
            while !input.unwritten().is_empty() {
                let mut output = WriteBuffer::new_initialized(&mut self.scratch);
                layer.encode(&mut input, &mut output)?;
                coded.extend_from_slice(output.written());
            }
            let mut done = then == Then::Nothing;
            while !done {
                let mut output = WriteBuffer::new_initialized(&mut self.scratch);
                done = match then {
                    Then::Finish => layer.finish(&mut output)?,
                    Then::Flush | Then::Nothing => layer.flush(&mut output)?,
                };
                coded.extend_from_slice(output.written());
            }
            bytes = coded;
        }
        out.extend_from_slice(&bytes);
        Ok(())
    }
}

fn encoder(coding: Coding) -> Box<dyn EncodeV2 + Send> {
    match coding {
        Coding::Gzip => Box::new(GzipEncoder::new(Level::Precise(4).into())),
        Coding::Deflate => Box::new(ZlibEncoder::new(Level::Precise(4).into())),
        Coding::Brotli => Box::new(BrotliEncoder::new(
            EncoderParams::default()
                .quality(Level::Precise(3))
                .window_size(18),
        )),
        Coding::Zstd => Box::new(ZstdEncoder::new_with_params(1, &[CParameter::window_log(18)])),
    }
}
