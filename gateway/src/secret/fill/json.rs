//! Strings of a JSON body (RFC 8259) as a stream, some of them filled: a tokenizer that holds back no more than one short string.
use super::slots::{Filling, Slots, Written};
use crate::secret::leak::Leak;
use bytes::BytesMut;
use zeroize::Zeroizing;

/// Longest escape of one byte: `\u0061`.
const ESCAPE: usize = 6;
/// Arrays and objects inside each other; deeper bodies are not looked into.
const DEEPEST: usize = 1024;
/// What may stand before a message's first bracket (Socket.IO: `42/name,17[...]`), in bytes.
const PREFIX: usize = 128;
/// The word before a placeholder (`Bearer`), in bytes.
const WORD: usize = 64;

/// A JSON body on its way.
pub(in crate::secret) struct Json {
    slots: Slots,
    /// The pointer of each slot, its tokens unescaped (RFC 6901 section 4).
    pointers: Vec<Vec<String>>,
    levels: Vec<Level>,
    state: State,
    /// Slots whose pointer leads to the value that comes next, or through it.
    here: Vec<usize>,
    /// What is held back of a string until it is whole.
    token: Vec<u8>,
    longest_key: usize,
    /// A message of a WebSocket: something may stand before its first bracket, and a word before a placeholder.
    message: bool,
}

/// An array or object that is open.
struct Level {
    array: bool,
    /// Elements of the array before this one.
    index: usize,
    /// Slots whose pointer leads into it.
    inside: Vec<usize>,
    /// Those of them whose key was there already.
    seen: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first bracket of a message, after so many bytes.
    Prefix(usize),
    /// A value must come, or where an array has just begun its end.
    Value {
        may_end: bool,
    },
    /// A key must come, or where an object has just begun its end.
    Key {
        may_end: bool,
    },
    Colon,
    /// After a value.
    After,
    /// In a number or name.
    Scalar,
    Text(Text),
    /// It is no JSON: the rest passes as it is.
    Broken,
}

/// A string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Text {
    key: bool,
    held: bool,
    /// The next byte belongs to an escape.
    escaped: bool,
}

/// What is no JSON.
struct NoJson;

impl Json {
    /// `pointers` are those of the slots, in their order.
    pub(in crate::secret) fn new(slots: Slots, pointers: &[&str]) -> Self {
        let pointers: Vec<Vec<String>> = pointers.iter().map(|pointer| tokens(pointer)).collect();
        let keys = pointers.iter().flatten();
        let longest_key = keys.map(String::len).max().unwrap_or(0) * ESCAPE;
        Self {
            here: (0..slots.len()).collect(),
            slots,
            pointers,
            levels: Vec::new(),
            state: State::Value { may_end: false },
            token: Vec::new(),
            longest_key,
            message: false,
        }
    }

    /// The same for messages of a WebSocket.
    pub(in crate::secret) fn message(slots: Slots, pointers: &[&str]) -> Self {
        Self {
            state: State::Prefix(0),
            message: true,
            ..Self::new(slots, pointers)
        }
    }

    /// What was put in so far.
    pub(in crate::secret) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Takes a piece and appends what may go on.
    pub(in crate::secret) fn push(&mut self, mut piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        while !piece.is_empty() {
            let taken = match self.state {
                State::Broken => {
                    out.extend_from_slice(piece);
                    piece.len()
                }
                State::Text(text) => self.text(text, piece, out)?,
                _ => match self.mark(piece, out) {
                    Ok(taken) => taken,
                    Err(NoJson) => {
                        self.slots.broken("JSON")?;
                        self.state = State::Broken;
                        0
                    }
                },
            };
            piece = &piece[taken..];
        }
        Ok(())
    }

    /// The end of the body.
    pub(in crate::secret) fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        out.extend_from_slice(&std::mem::take(&mut self.token));
        let whole = matches!(self.state, State::After | State::Scalar) && self.levels.is_empty();
        match whole {
            true => Ok(()),
            false => self.slots.broken("JSON"),
        }
    }

    /// Everything between strings, one byte at a time.
    fn mark(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<usize, NoJson> {
        let byte = piece[0];
        let next = match (self.state, byte) {
            (State::Prefix(before), _) if !matches!(byte, b'{' | b'[' | b'"') => match before < PREFIX {
                true => Ok(State::Prefix(before + 1)),
                false => Err(NoJson),
            },
            (State::Prefix(_), _) => {
                self.state = State::Value { may_end: false };
                return Ok(0);
            }
            (State::Scalar, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => {
                self.state = State::After;
                return Ok(0);
            }
            (State::Scalar, b'"' | b'{' | b'[' | b':') => Err(NoJson),
            (State::Scalar, _) => Ok(State::Scalar),
            (state, b' ' | b'\t' | b'\r' | b'\n') => Ok(state),
            // A byte order mark, which some writers put before everything.
            (State::Value { may_end: false }, 0xef | 0xbb | 0xbf) if self.levels.is_empty() => Ok(self.state),
            (State::Value { .. }, b'"') => Ok(self.open_text(false)),
            (State::Key { .. }, b'"') => Ok(self.open_text(true)),
            (State::Value { .. }, b'{' | b'[') => self.open(byte == b'['),
            (State::Value { may_end: true }, b']') => self.close(true),
            (State::Key { may_end: true }, b'}') => self.close(false),
            (State::After, b'}' | b']') => self.close(byte == b']'),
            (State::After, b',') => self.comma(),
            (State::Colon, b':') => Ok(State::Value { may_end: false }),
            (State::Value { .. }, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => Ok(State::Scalar),
            _ => Err(NoJson),
        };
        self.state = next?;
        out.extend_from_slice(&piece[..1]);
        Ok(1)
    }

    fn open(&mut self, array: bool) -> Result<State, NoJson> {
        if self.levels.len() == DEEPEST {
            return Err(NoJson);
        }
        let depth = self.levels.len();
        let mut inside = std::mem::take(&mut self.here);
        inside.retain(|number| self.pointers[*number].len() > depth);
        self.levels.push(Level {
            array,
            index: 0,
            inside,
            seen: Vec::new(),
        });
        if array {
            self.element();
            Ok(State::Value { may_end: true })
        } else {
            Ok(State::Key { may_end: true })
        }
    }

    fn close(&mut self, array: bool) -> Result<State, NoJson> {
        self.here.clear();
        match self.levels.pop() {
            Some(level) if level.array == array => Ok(State::After),
            _ => Err(NoJson),
        }
    }

    fn comma(&mut self) -> Result<State, NoJson> {
        let level = self.levels.last_mut().ok_or(NoJson)?;
        if !level.array {
            return Ok(State::Key { may_end: false });
        }
        level.index += 1;
        self.element();
        Ok(State::Value { may_end: false })
    }

    /// The slots whose pointer leads to the next element.
    fn element(&mut self) {
        self.here.clear();
        let depth = self.levels.len() - 1;
        if let Some(level) = self.levels.last().filter(|level| !level.inside.is_empty()) {
            let index = level.index.to_string();
            let leads = |number: &usize| self.pointers[*number][depth] == index;
            self.here.extend(level.inside.iter().copied().filter(leads));
        }
    }

    fn open_text(&self, key: bool) -> State {
        let held = match key {
            true => self.levels.last().is_some_and(|level| !level.inside.is_empty()),
            false => self.targets().next().is_some(),
        };
        State::Text(Text {
            key,
            held,
            escaped: false,
        })
    }

    /// The slots whose pointer ends at the value that is here.
    fn targets(&self) -> impl Iterator<Item = usize> {
        let depth = self.levels.len();
        let ends = move |number: &usize| self.pointers[*number].len() == depth;
        self.here.iter().copied().filter(ends)
    }

    /// Some of a string, or its end; how many bytes that was.
    fn text(&mut self, mut text: Text, piece: &[u8], out: &mut BytesMut) -> Result<usize, Leak> {
        let mut at = 0;
        let mut whole = false;
        while at < piece.len() {
            if std::mem::take(&mut text.escaped) {
                at += 1;
                continue;
            }
            let Some(found) = memchr::memchr2(b'"', b'\\', &piece[at..]) else {
                at = piece.len();
                break;
            };
            at += found;
            if piece[at] == b'"' {
                whole = true;
                break;
            }
            text.escaped = true;
            at += 1;
        }
        let most = match text.key {
            true => self.longest_key,
            false => self.slots.longest() * ESCAPE + WORD,
        };
        if text.held && self.token.len() + at > most {
            out.extend_from_slice(&std::mem::take(&mut self.token));
            text.held = false;
        }
        match text.held {
            true => self.token.extend_from_slice(&piece[..at]),
            false => out.extend_from_slice(&piece[..at]),
        }
        if !whole {
            self.state = State::Text(text);
            return Ok(at);
        }
        match text.key {
            true => self.key(text.held, out)?,
            false => self.value(text.held, out)?,
        }
        out.extend_from_slice(b"\"");
        Ok(at + 1)
    }

    /// A key is whole.
    fn key(&mut self, held: bool, out: &mut BytesMut) -> Result<(), Leak> {
        self.state = State::Colon;
        self.here.clear();
        let token = std::mem::take(&mut self.token);
        out.extend_from_slice(&token);
        let depth = self.levels.len().saturating_sub(1);
        let Some(level) = self.levels.last_mut().filter(|_| held) else {
            return Ok(());
        };
        let Some(key) = unescaped(&token) else {
            return Ok(());
        };
        let leads = |number: &usize| self.pointers[*number][depth] == key;
        self.here.extend(level.inside.iter().copied().filter(leads));
        for number in &self.here {
            match level.seen.contains(number) {
                true => self.slots.again(*number)?,
                false => level.seen.push(*number),
            }
        }
        Ok(())
    }

    /// A string that is a value is whole.
    fn value(&mut self, held: bool, out: &mut BytesMut) -> Result<(), Leak> {
        self.state = State::After;
        let token = std::mem::take(&mut self.token);
        if held && let Some(text) = unescaped(&token) {
            let targets: Vec<usize> = self.targets().collect();
            let word = match text.find(' ') {
                Some(space) if self.message => space + 1,
                _ => 0,
            };
            if let Some(filling) = self.slots.offer(&targets, &text.as_bytes()[word..])? {
                out.extend_from_slice(&escaped(&token, &text.as_bytes()[..word], &filling));
                return Ok(());
            }
        }
        out.extend_from_slice(&token);
        Ok(())
    }
}

/// The tokens of a pointer, which begins with `/`.
fn tokens(pointer: &str) -> Vec<String> {
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    pointer.split('/').skip(1).map(unescaped).collect()
}

/// What a string without its quotes stands for; none where it is no string of JSON.
fn unescaped(token: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", token, b"\""].concat()).ok()
}

/// The value, after `word`, in the form in which its placeholder stood there.
fn escaped(token: &[u8], word: &[u8], filling: &Filling) -> Written {
    if !filling.fits {
        let text = filling.text().unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        let whole = Zeroizing::new(format!("{word}{text}"));
        let quoted = Zeroizing::new(serde_json::to_string(whole.as_str()).unwrap_or_default());
        let inside = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        return Zeroizing::new(inside.unwrap_or_default().as_bytes().to_vec());
    }
    let value = Zeroizing::new([word, filling.bytes()].concat());
    let mut text = Zeroizing::new(Vec::with_capacity(token.len()));
    let (mut at, mut byte) = (0, 0);
    while at < token.len() {
        let (unit, stands_for) = unit(&token[at..]);
        match value.get(byte) {
            Some(real) if stands_for == 1 && unit == 1 => text.push(*real),
            Some(real) if stands_for == 1 && unit == ESCAPE => text.extend(format!("\\u{real:04x}").bytes()),
            // What is not a letter or digit is the same in both.
            _ => text.extend_from_slice(&token[at..at + unit]),
        }
        at += unit;
        byte += stands_for;
    }
    text
}

/// How long the first unit of a string is, and for how many bytes of UTF-8 it stands.
fn unit(token: &[u8]) -> (usize, usize) {
    match token {
        [b'\\', b'u', hex @ ..] => {
            let digits = hex.get(..4).and_then(|hex| std::str::from_utf8(hex).ok());
            let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            match unit.unwrap_or(0) {
                0..0x80 => (ESCAPE, 1),
                0x80..0x800 => (ESCAPE, 2),
                // Two of them stand for four bytes.
                0xd800..0xe000 => (ESCAPE, 2),
                _ => (ESCAPE, 3),
            }
        }
        [b'\\', _, ..] => (2, 1),
        _ => (1, 1),
    }
}
