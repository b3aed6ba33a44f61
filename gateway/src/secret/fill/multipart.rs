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
            State::Delimited => self.delimited(),
            State::Head => self.head(out),
            State::Field(_) => self.field(out),
        }
    }

    /// A line end, or `--` behind the last one.
    fn delimited(&mut self) -> Result<bool, Leak> {
        self.state = match self.held.as_slice() {
            [b'-', b'-', ..] => State::Rest,
            // The line end stays: a part may have no head at all.
            [b'\r', b'\n', ..] => State::Head,
            [] | [b'-' | b'\r'] => return Ok(false),
            // RFC 2046 section 5.1.1 allows blanks here, but servers differ in whether this is a delimiter then: from here on
            // nobody can tell what is a part.
            [b' ' | b'\t', ..] => {
                self.slots.broken("multipart form")?;
                State::Rest
            }
            // A boundary that only begins like ours.
            _ => State::Pass,
        };
        Ok(true)
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
            Some(end) => match &self.held[end + self.delimiter.needle().len()..] {
                [] | [b'-' | b'\r'] => return Ok(false),
                [b'-', b'-', ..] | [b'\r', b'\n', ..] => {
                    if let Some(filling) = self.slots.offer(here, &self.held[..end])? {
                        out.extend_from_slice(filling.bytes());
                        self.held.drain(..end);
                    }
                }
                // Behind anything else the field may go on, so what stands before it is not the whole of it.
                _ => {}
            },
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

/// The name of a field that is no file; none where the head does not name exactly one, or servers may read it otherwise.
fn field_name(head: &[u8]) -> Option<Vec<u8>> {
    let mut disposition = None;
    for line in lines(head)? {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        if line[..colon]
            .trim_ascii()
            .eq_ignore_ascii_case(b"content-disposition")
            && disposition.replace(&line[colon + 1..]).is_some()
        {
            return None;
        }
    }
    let all = parameters(disposition?)?;
    if all.iter().any(|(name, _)| name.starts_with(b"filename")) {
        return None;
    }
    only(all, b"name")
}

/// The lines of a head; none where one is folded, or a line end is half: what is a line then differs from server to server.
fn lines(head: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    // The last one has no end here.
    let ended = all.len().saturating_sub(1);
    for line in &mut all[..ended] {
        *line = line.strip_suffix(b"\r")?;
    }
    let is_plain = |line: &&[u8]| !line.contains(&b'\r') && !matches!(line, [b' ' | b'\t', ..]);
    all.iter().all(is_plain).then_some(all)
}

/// The value of the only parameter whose name begins with `wanted`, where that is its whole name: servers differ in which of
/// two they take, and in whether they know `name*` (RFC 8187) and `name*0` (RFC 2231).
fn only(all: Vec<(Vec<u8>, Vec<u8>)>, wanted: &[u8]) -> Option<Vec<u8>> {
    let mut like = all.into_iter().filter(|(name, _)| name.starts_with(wanted));
    match (like.next(), like.next()) {
        (Some((name, value)), None) if name == wanted => Some(value),
        _ => None,
    }
}

/// The parameters behind the first `;`; none where one of them cannot be read.
fn parameters(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let first = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
    let (mut all, mut rest) = (Vec::new(), &text[first..]);
    while let Some(text) = rest.strip_prefix(b";") {
        let (name, value, after) = parameter(text)?;
        all.push((name, value));
        rest = after;
    }
    rest.is_empty().then_some(all)
}

/// One parameter, its name in lower case and its value without quotes, and what follows it.
fn parameter(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>, &[u8])> {
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let name = text[..equals].trim_ascii().to_ascii_lowercase();
    if name.is_empty() || !name.iter().all(|byte| is_plain(*byte)) {
        return None;
    }
    let text = &text[equals + 1..];
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        let value = text[..end].trim_ascii();
        let plain = value.iter().all(|byte| is_plain(*byte));
        return plain.then(|| (name, value.to_vec(), &text[end..]));
    };
    let (mut value, mut at) = (Vec::new(), 0);
    loop {
        match quoted.get(at..)? {
            [b'"', after @ ..] => return Some((name, value, after.trim_ascii_start())),
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

/// Whether a byte may stand outside of quotes. More than in a token (RFC 9110 section 5.6.2): clients leave boundaries with `=`
/// or `/` unquoted.
fn is_plain(byte: u8) -> bool {
    !byte.is_ascii_control() && !matches!(byte, b' ' | b'"' | b'\\' | b',' | b';')
}

/// The boundary of a multipart body's `Content-Type`, at most 70 characters (RFC 2046 section 5.1.1); none where servers may
/// take another one.
pub(in crate::secret) fn boundary(content_type: &str) -> Option<String> {
    let value = only(parameters(content_type.as_bytes())?, b"boundary")?;
    let value = String::from_utf8(value).ok()?;
    (1..=70).contains(&value.len()).then_some(value)
}
