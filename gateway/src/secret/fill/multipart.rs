//! Fields of a `multipart/form-data` body (RFC 7578) as a stream, some of them filled; other parts pass as they come.
use super::slots::Slots;
use crate::secret::leak::Leak;
use bytes::BytesMut;
use memchr::memmem::Finder;

/// Longest head of a part, in bytes; a longer one is none that is looked for.
const LONGEST_HEAD: usize = 16 * 1024;

/// A multipart body on its way.
pub(in crate::secret) struct Multipart {
    slots: Slots,
    /// The field of each slot.
    names: Vec<String>,
    seen: Vec<usize>,
    /// Finds a line end, `--` and the boundary.
    delimiter: Finder<'static>,
    state: State,
    /// What is held back: the beginning of a delimiter, a head, or the content of a field that is looked for.
    held: Vec<u8>,
    /// Bytes at the beginning of `held` that never came: the body may begin with a delimiter, without its line end.
    unreal: usize,
}

enum State {
    /// Before the first delimiter, or in a part of no interest.
    Pass,
    /// Behind a delimiter.
    Delimited,
    /// In the head of a part.
    Head,
    /// In the content of the field of these slots.
    Field(Vec<usize>),
    /// Behind the last delimiter, or it is no multipart.
    Rest,
}

/// What ends a head: the empty line.
const HEAD_END: &[u8] = b"\r\n\r\n";

impl Multipart {
    /// `names` are the fields of the slots, in their order.
    pub(in crate::secret) fn new(slots: Slots, names: Vec<String>, boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}");
        Self {
            slots,
            names,
            seen: Vec::new(),
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            state: State::Pass,
            held: b"\r\n".to_vec(),
            unreal: 2,
        }
    }

    /// What was put in so far.
    pub(in crate::secret) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whether a piece passes as it is; it need not be pushed then.
    pub(in crate::secret) fn passes(&self, piece: &[u8]) -> bool {
        match self.state {
            State::Rest => self.held.is_empty(),
            State::Pass => {
                self.held.is_empty()
                    && self.delimiter.find(piece).is_none()
                    && self.hold_from(piece) == piece.len()
            }
            _ => false,
        }
    }

    /// Takes a piece and appends what may go on.
    pub(in crate::secret) fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        self.held.extend_from_slice(piece);
        while self.step(out)? {}
        Ok(())
    }

    /// The end of the body.
    pub(in crate::secret) fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        let ended = matches!(self.state, State::Rest);
        let all = self.held.len();
        self.let_go(all, out);
        match ended {
            true => Ok(()),
            false => self.slots.broken("multipart form"),
        }
    }

    /// One step; false where it needs more.
    fn step(&mut self, out: &mut BytesMut) -> Result<bool, Leak> {
        match &self.state {
            State::Rest => {
                let all = self.held.len();
                self.let_go(all, out);
                Ok(false)
            }
            State::Pass => {
                let found = self.delimiter.find(&self.held);
                let settled = match found {
                    Some(at) => at + self.delimiter.needle().len(),
                    None => self.hold_from(&self.held),
                };
                self.let_go(settled, out);
                if found.is_some() {
                    self.state = State::Delimited;
                }
                Ok(found.is_some())
            }
            State::Delimited => Ok(self.delimited(out)),
            State::Head => self.head(out),
            State::Field(_) => self.field(out),
        }
    }

    /// Blanks and a line end, or `--` behind the last one (RFC 2046 section 5.1.1).
    fn delimited(&mut self, out: &mut BytesMut) -> bool {
        let blanks = self.held.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        let blanks = blanks.count();
        self.state = match self.held.get(blanks..) {
            Some([b'-', b'-', ..]) if blanks == 0 => State::Rest,
            // The line end stays: a part may have no head at all.
            Some([b'\r', b'\n', ..]) => State::Head,
            Some([] | [b'-' | b'\r']) => return false,
            // A boundary that only begins like ours.
            _ => State::Pass,
        };
        self.let_go(blanks, out);
        true
    }

    fn head(&mut self, out: &mut BytesMut) -> Result<bool, Leak> {
        let Some(end) = memchr::memmem::find(&self.held, HEAD_END) else {
            if self.held.len() > LONGEST_HEAD {
                self.slots.broken("multipart form")?;
                self.state = State::Rest;
                return Ok(true);
            }
            return Ok(false);
        };
        let here: Vec<usize> = match field_name(&self.held[..end]) {
            Some(name) => (0..self.slots.len())
                .filter(|number| self.names[*number].as_bytes() == name)
                .collect(),
            None => Vec::new(),
        };
        for number in &here {
            match self.seen.contains(number) {
                true => self.slots.again(*number)?,
                false => self.seen.push(*number),
            }
        }
        // The second line end may be that of a delimiter, where there is no content.
        self.let_go(end + 2, out);
        self.state = match here.is_empty() {
            true => State::Pass,
            false => {
                self.let_go(2, out);
                State::Field(here)
            }
        };
        Ok(true)
    }

    fn field(&mut self, out: &mut BytesMut) -> Result<bool, Leak> {
        let State::Field(here) = &self.state else {
            return Ok(false);
        };
        match self.delimiter.find(&self.held) {
            Some(end) => {
                if let Some(filling) = self.slots.offer(here, &self.held[..end])? {
                    out.extend_from_slice(filling.bytes());
                    self.held.drain(..end);
                }
            }
            None if self.held.len() <= self.slots.longest() + self.delimiter.needle().len() => {
                return Ok(false);
            }
            None => {}
        }
        self.state = State::Pass;
        Ok(true)
    }

    /// From where on the rest may be the beginning of a delimiter.
    fn hold_from(&self, bytes: &[u8]) -> usize {
        let needle = self.delimiter.needle();
        let earliest = (bytes.len() + 1).saturating_sub(needle.len());
        (earliest..bytes.len())
            .find(|at| needle.starts_with(&bytes[*at..]))
            .unwrap_or(bytes.len())
    }

    fn let_go(&mut self, count: usize, out: &mut BytesMut) {
        let unreal = self.unreal.min(count);
        out.extend_from_slice(&self.held[unreal..count]);
        self.held.drain(..count);
        self.unreal -= unreal;
    }
}

/// The name of a field that is no file; none where the head does not name exactly one.
fn field_name(head: &[u8]) -> Option<Vec<u8>> {
    let mut dispositions = head.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.trim_ascii();
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = line[..colon].trim_ascii();
        name.eq_ignore_ascii_case(b"content-disposition")
            .then_some(line[colon + 1..].trim_ascii())
    });
    let (Some(disposition), None) = (dispositions.next(), dispositions.next()) else {
        return None;
    };
    let mut name = None;
    let mut rest = disposition;
    while let Some(at) = rest.iter().position(|byte| *byte == b';') {
        let (parameter, value, after) = parameter(&rest[at + 1..])?;
        rest = after;
        if parameter.starts_with(b"filename") || (parameter == b"name" && name.is_some()) {
            return None;
        }
        if parameter == b"name" {
            name = Some(value);
        }
    }
    name
}

/// One parameter, its name in lower case and its value without quotes, and what follows it.
fn parameter(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>, &[u8])> {
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let name = text[..equals].trim_ascii().to_ascii_lowercase();
    let text = &text[equals + 1..];
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        return Some((name, text[..end].trim_ascii().to_vec(), &text[end..]));
    };
    let (mut value, mut at) = (Vec::new(), 0);
    loop {
        match quoted.get(at..)? {
            [b'"', ..] => return Some((name, value, &quoted[at + 1..])),
            [b'\\', escaped @ (b'"' | b'\\'), ..] => {
                value.push(*escaped);
                at += 2;
            }
            [byte, ..] => {
                value.push(*byte);
                at += 1;
            }
            [] => return None,
        }
    }
}

/// The boundary of a multipart body's `Content-Type`, at most 70 characters (RFC 2046 section 5.1.1).
pub(in crate::secret) fn boundary(content_type: &str) -> Option<String> {
    let mut rest = content_type.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b';') {
        let (name, value, after) = parameter(&rest[at + 1..])?;
        if name == b"boundary" {
            let value = String::from_utf8(value).ok()?;
            return (1..=70).contains(&value.len()).then_some(value);
        }
        rest = after;
    }
    None
}
