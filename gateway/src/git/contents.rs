//! What stands in the objects of a push, inflated as it passes (gitformat-pack): whole objects, and what deltas add. Pure.
//!
//! Nothing is kept but the piece at hand. What a delta copies from its base is not seen here: it stood there before.
use super::object::Hash;
use super::pack::{self, Base};
use super::pkt_line::{self, Line};
use bytes::{Buf, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

/// An object's head is never longer: type and size, and the base's name or distance.
const LONGEST_HEAD: usize = 10 + 32;
/// Bytes inflated at once.
const SCRATCH: usize = 16 * 1024;

/// A piece of what stands in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes that follow those before.
    Data(&'a [u8]),
    /// What comes next does not follow what came before.
    End,
}

/// Reads a push: its commands are passed over, its pack is looked into.
pub struct Contents {
    input: BytesMut,
    inflate: Decompress,
    state: State,
    hash: Hash,
    /// Objects still to come.
    left: u32,
    /// Bytes that may still be inflated.
    budget: u64,
}

enum State {
    Lines,
    /// After the commands: options, or the pack.
    AfterFlush,
    Pack,
    Between,
    Inside(Option<Delta>),
    /// Behind the last object, or at the end of the budget, or where nothing makes sense any more.
    Ended(bool),
}

impl Contents {
    /// Inflates no more than `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self {
            input: BytesMut::new(),
            inflate: Decompress::new(true),
            state: State::Lines,
            hash: Hash::Sha1,
            left: 0,
            budget,
        }
    }

    /// Whether all that came was looked into so far: neither was the budget used up, nor did something make no sense.
    pub fn is_whole(&self) -> bool {
        !matches!(self.state, State::Ended(false))
    }

    /// Reads the next bytes; `each` is given what stands in objects, and may stop it.
    pub fn feed<E>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if matches!(self.state, State::Ended(_)) {
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        while self.step(each)? {}
        if matches!(self.state, State::Ended(_)) {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    /// Goes on by one line, head or piece; false where more bytes are needed, or where it ended.
    fn step<E>(&mut self, each: &mut impl FnMut(Piece<'_>) -> Result<(), E>) -> Result<bool, E> {
        match std::mem::replace(&mut self.state, State::Ended(false)) {
            State::Lines => Ok(self.line(State::Lines)),
            State::AfterFlush if self.input.len() < 4 => Ok(self.wait(State::AfterFlush)),
            State::AfterFlush if self.input.starts_with(b"PACK") => Ok(self.go_on(State::Pack, 0)),
            State::AfterFlush => Ok(self.line(State::Lines)),
            State::Pack => Ok(self.begin()),
            State::Between => Ok(self.head()),
            State::Inside(delta) => self.inside(delta, each),
            State::Ended(whole) => {
                self.state = State::Ended(whole);
                Ok(false)
            }
        }
    }

    fn wait(&mut self, state: State) -> bool {
        self.state = state;
        false
    }

    fn go_on(&mut self, state: State, taken: usize) -> bool {
        self.input.advance(taken);
        self.state = state;
        true
    }

    fn line(&mut self, again: State) -> bool {
        match pkt_line::read(&self.input) {
            Ok(None) => self.wait(again),
            Ok(Some((Line::Flush, taken))) => self.go_on(State::AfterFlush, taken),
            Ok(Some((Line::Data(line), taken))) => {
                if memchr::memmem::find(line, b"object-format=sha256").is_some() {
                    self.hash = Hash::Sha256;
                }
                self.go_on(again, taken)
            }
            Err(_) => false,
        }
    }

    fn begin(&mut self) -> bool {
        let Some(head) = self.input.first_chunk::<12>() else {
            return self.wait(State::Pack);
        };
        let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, count @ ..] = head else {
            return false;
        };
        self.left = u32::from_be_bytes(*count);
        self.go_on(State::Between, 12)
    }

    fn head(&mut self) -> bool {
        if self.left == 0 {
            self.state = State::Ended(true);
            return false;
        }
        match pack::read_head(&self.input, self.hash) {
            Some(head) => {
                self.left -= 1;
                self.inflate.reset(true);
                let delta = match head.base {
                    Base::None(_) | Base::Content => None,
                    Base::Before(_) | Base::Named(_) => Some(Delta::default()),
                };
                self.go_on(State::Inside(delta), head.length)
            }
            None if self.input.len() < LONGEST_HEAD => self.wait(State::Between),
            None => false,
        }
    }

    fn inside<E>(
        &mut self,
        mut delta: Option<Delta>,
        each: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.input.is_empty() {
            return Ok(self.wait(State::Inside(delta)));
        }
        let mut scratch = [0; SCRATCH];
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let Ok(status) = self
            .inflate
            .decompress(&self.input, &mut scratch, FlushDecompress::None)
        else {
            return Ok(false);
        };
        let taken = usize::try_from(self.inflate.total_in() - read).unwrap_or(usize::MAX);
        let made = usize::try_from(self.inflate.total_out() - written).unwrap_or(usize::MAX);
        let Some(left) = self.budget.checked_sub(made as u64) else {
            return Ok(false);
        };
        self.budget = left;
        match &mut delta {
            None => each(Piece::Data(&scratch[..made]))?,
            Some(delta) => delta.feed(&scratch[..made], each)?,
        }
        if status == Status::StreamEnd {
            each(Piece::End)?;
            return Ok(self.go_on(State::Between, taken));
        }
        if taken == 0 && made == 0 {
            return Ok(self.wait(State::Inside(delta)));
        }
        Ok(self.go_on(State::Inside(delta), taken))
    }
}

/// A delta, read for what it adds (gitformat-pack, "Deltified representation").
#[derive(Default)]
struct Delta {
    /// The two sizes at its beginning that are behind.
    sizes: u8,
    /// Bytes of what is added that still come.
    adding: usize,
    /// Bytes of a copy's offset and length that still come.
    skipping: u32,
}

impl Delta {
    fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.sizes < 2 {
                self.sizes += u8::from(first & 0x80 == 0);
                bytes = rest;
            } else if self.adding > 0 {
                let (added, rest) = bytes.split_at(self.adding.min(bytes.len()));
                self.adding -= added.len();
                each(Piece::Data(added))?;
                bytes = rest;
            } else if self.skipping > 0 {
                self.skipping -= 1;
                bytes = rest;
            } else {
                if first & 0x80 == 0 {
                    self.adding = usize::from(*first);
                } else {
                    self.skipping = (first & 0x7f).count_ones();
                    each(Piece::End)?;
                }
                bytes = rest;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "contents/tests.rs"]
mod tests;
