//! Fields of a form body (`application/x-www-form-urlencoded`, WHATWG URL section 5) as a stream, some of them filled.
use super::slots::{Filling, Slots, Written};
use crate::secret::leak::Leak;
use crate::secret::places::{VALUE, form_decode};
use bytes::BytesMut;
use percent_encoding::percent_encode;
use zeroize::Zeroizing;

/// Longest encoded form of one byte.
const ESCAPE: usize = 3;

/// A form body on its way.
pub(in crate::secret) struct Form {
    slots: Slots,
    /// The field of each slot.
    names: Vec<String>,
    /// Slots whose field was there already.
    seen: Vec<usize>,
    state: State,
    /// What is held back of a name or value until it is whole.
    token: Vec<u8>,
    longest_name: usize,
}

enum State {
    /// Inside a name; it is held.
    Name,
    /// Inside a name or value that is of no interest.
    Pass,
    /// Inside the value of these slots; it is held.
    Value(Vec<usize>),
}

impl Form {
    /// `names` are the fields of the slots, in their order.
    pub(in crate::secret) fn new(slots: Slots, names: Vec<String>) -> Self {
        let longest_name = names.iter().map(String::len).max().unwrap_or(0) * ESCAPE;
        Self {
            slots,
            names,
            seen: Vec::new(),
            state: State::Name,
            token: Vec::new(),
            longest_name,
        }
    }

    /// What was put in so far.
    pub(in crate::secret) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Takes a piece and appends what may go on.
    pub(in crate::secret) fn push(&mut self, mut piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        while let Some(at) = memchr::memchr2(b'&', b'=', piece) {
            self.inside(&piece[..at], out);
            self.mark(piece[at], out)?;
            piece = &piece[at + 1..];
        }
        self.inside(piece, out);
        Ok(())
    }

    /// The end of the body.
    pub(in crate::secret) fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        self.end_field(out)
    }

    fn inside(&mut self, piece: &[u8], out: &mut BytesMut) {
        let most = match self.state {
            State::Pass => 0,
            State::Name => self.longest_name,
            State::Value(_) => self.slots.longest() * ESCAPE,
        };
        if self.token.len() + piece.len() > most {
            // Longer than anything that is looked for.
            out.extend_from_slice(&std::mem::take(&mut self.token));
            out.extend_from_slice(piece);
            if !piece.is_empty() {
                self.state = State::Pass;
            }
        } else {
            self.token.extend_from_slice(piece);
        }
    }

    fn mark(&mut self, mark: u8, out: &mut BytesMut) -> Result<(), Leak> {
        match (&self.state, mark) {
            (State::Name, b'=') => {
                let name = form_decode(&self.token);
                let here: Vec<usize> = (0..self.slots.len())
                    .filter(|number| self.names[*number].as_bytes() == name)
                    .collect();
                for number in &here {
                    match self.seen.contains(number) {
                        true => self.slots.again(*number)?,
                        false => self.seen.push(*number),
                    }
                }
                out.extend_from_slice(&std::mem::take(&mut self.token));
                self.state = match here.is_empty() {
                    true => State::Pass,
                    false => State::Value(here),
                };
                out.extend_from_slice(b"=");
                Ok(())
            }
            (_, b'&') => {
                self.end_field(out)?;
                out.extend_from_slice(b"&");
                Ok(())
            }
            (..) => {
                self.inside(&[mark], out);
                Ok(())
            }
        }
    }

    fn end_field(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        let token = std::mem::take(&mut self.token);
        let state = std::mem::replace(&mut self.state, State::Name);
        if let State::Value(here) = state
            && let Some(filling) = self.slots.offer(&here, &form_decode(&token))?
        {
            out.extend_from_slice(&encoded(&token, &filling));
        } else {
            out.extend_from_slice(&token);
        }
        Ok(())
    }
}

/// The value in the form in which its placeholder stood there.
fn encoded(token: &[u8], filling: &Filling) -> Written {
    let value = filling.bytes();
    if !filling.fits {
        let bytes = percent_encode(value, VALUE).flat_map(str::bytes);
        return Zeroizing::new(bytes.collect());
    }
    let mut text = Zeroizing::new(Vec::with_capacity(token.len()));
    let (mut at, mut rest) = (0, value.iter());
    while let (Some(unit), Some(byte)) = (token.get(at), rest.next()) {
        let escaped = *unit == b'%'
            && token
                .get(at + 1..at + ESCAPE)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        match (escaped, *unit) {
            (true, _) => {
                text.extend(format!("%{byte:02X}").bytes());
                at += ESCAPE;
            }
            (false, b'+') => {
                text.push(b'+');
                at += 1;
            }
            (false, _) => {
                text.push(*byte);
                at += 1;
            }
        }
    }
    text
}
