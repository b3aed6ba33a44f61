//! The commits at the beginning of a pack (gitformat-pack): who descends from whom, as far as the pack shows it. Pure.
//!
//! git packs commits first, newest first, then trees and files: reading ends where the first of those begins. What is found
//! is certain however the bytes are cut into objects, since a commit names its parents and its own name is a hash over that.
//! What is not found is not shown: deltas whose base stands elsewhere, what comes later, what is beyond the bounds.
use super::object::{Hash, Kind, ObjectId, parents};
use bytes::{Buf, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use std::collections::{HashMap, HashSet};

/// A larger commit or delta ends the reading.
const LARGEST: usize = 1 << 20;
/// Bytes of inflated objects, beyond which reading ends: what is kept as a base for deltas is never more.
const INFLATED: usize = 16 << 20;
/// Commits visited while parents are followed, over all questions.
const STEPS: usize = 1 << 20;
/// An object's head is never longer: type and size, and the base's name.
const LONGEST_HEAD: usize = 10 + 32;
/// Bytes inflated at once.
const SCRATCH: usize = 4 * 1024;

/// The commits of a pack, read as it passes.
pub struct Commits {
    hash: Hash,
    input: BytesMut,
    inflate: Decompress,
    /// Where `input` begins in the pack.
    at: u64,
    state: State,
    /// Objects still to come.
    left: u32,
    inflated: usize,
    parents: HashMap<ObjectId, Vec<ObjectId>>,
    bases: Vec<(Kind, Vec<u8>)>,
    by_offset: HashMap<u64, usize>,
    by_name: HashMap<ObjectId, usize>,
    steps: usize,
}

enum State {
    Beginning,
    Between,
    Inside(Object),
    Ended,
}

/// An object that is being inflated.
struct Object {
    offset: u64,
    size: usize,
    what: What,
    content: Vec<u8>,
}

#[derive(Clone, Copy)]
enum What {
    Whole(Kind),
    /// A delta against an object by its number.
    Delta(usize),
    /// A delta against what is not known: read over.
    Unknown,
}

impl Commits {
    /// Of a pack whose objects are named by `hash`.
    pub fn new(hash: Hash) -> Self {
        Self {
            hash,
            input: BytesMut::new(),
            inflate: Decompress::new(true),
            at: 0,
            state: State::Beginning,
            left: 0,
            inflated: 0,
            parents: HashMap::new(),
            bases: Vec::new(),
            by_offset: HashMap::new(),
            by_name: HashMap::new(),
            steps: STEPS,
        }
    }

    /// Whether more bytes can show more.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended)
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.is_open() {
            return;
        }
        self.input.extend_from_slice(bytes);
        // Nothing is wrong with a pack that cannot be read to its end here: it just shows no more.
        while self.step().is_some() {}
        if !self.is_open() {
            self.input = BytesMut::new();
        }
    }

    /// Whether the pack shows that `new` is `old` or descends from it.
    pub fn descends(&mut self, new: ObjectId, old: ObjectId) -> bool {
        let (mut seen, mut next) = (HashSet::from([new]), vec![new]);
        while let Some(commit) = next.pop() {
            if commit == old {
                return true;
            }
            let Some(left) = self.steps.checked_sub(1) else {
                return false;
            };
            self.steps = left;
            let parents = self.parents.get(&commit).map(Vec::as_slice).unwrap_or_default();
            next.extend(parents.iter().filter(|parent| seen.insert(**parent)));
        }
        false
    }

    /// Goes on by one object or piece of it; nothing where more bytes are needed, or where it ended.
    fn step(&mut self) -> Option<()> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Beginning => self.begin(),
            State::Between => self.head(),
            State::Inside(object) => self.inside(object),
            State::Ended => None,
        }
    }

    fn wait(&mut self, state: State) -> Option<()> {
        self.state = state;
        None
    }

    fn go_on(&mut self, state: State, taken: usize) -> Option<()> {
        self.input.advance(taken);
        self.at += taken as u64;
        self.state = state;
        Some(())
    }

    fn begin(&mut self) -> Option<()> {
        let Some(head) = self.input.first_chunk::<12>() else {
            return self.wait(State::Beginning);
        };
        let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, count @ ..] = head else {
            return None;
        };
        self.left = u32::from_be_bytes(*count);
        self.go_on(State::Between, 12)
    }

    fn head(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        match read_head(&self.input, self.hash) {
            Some(head) => {
                let what = match head.base {
                    Base::None(kind) => What::Whole(kind),
                    Base::Before(distance) => {
                        let offset = self.at.checked_sub(distance)?;
                        self.by_offset
                            .get(&offset)
                            .map_or(What::Unknown, |base| What::Delta(*base))
                    }
                    Base::Named(name) => self
                        .by_name
                        .get(&name)
                        .map_or(What::Unknown, |base| What::Delta(*base)),
                    Base::Content => return None,
                };
                if head.size > LARGEST {
                    return None;
                }
                self.inflate.reset(true);
                let object = Object {
                    offset: self.at,
                    size: head.size,
                    what,
                    content: Vec::new(),
                };
                self.go_on(State::Inside(object), head.length)
            }
            None if self.input.len() < LONGEST_HEAD => {
                self.left += 1;
                self.wait(State::Between)
            }
            None => None,
        }
    }

    fn inside(&mut self, mut object: Object) -> Option<()> {
        if self.input.is_empty() {
            return self.wait(State::Inside(object));
        }
        let mut scratch = [0; SCRATCH];
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(&self.input, &mut scratch, FlushDecompress::None)
            .ok()?;
        let taken = usize::try_from(self.inflate.total_in() - read).ok()?;
        let made = usize::try_from(self.inflate.total_out() - written).ok()?;
        self.inflated += made;
        object.content.extend_from_slice(&scratch[..made]);
        if object.content.len() > object.size || self.inflated > INFLATED {
            return None;
        }
        if status == Status::StreamEnd {
            self.learn(object)?;
            return self.go_on(State::Between, taken);
        }
        if taken == 0 && made == 0 {
            return self.wait(State::Inside(object));
        }
        self.go_on(State::Inside(object), taken)
    }

    /// Takes in what was inflated; nothing where it ends the reading.
    fn learn(&mut self, object: Object) -> Option<()> {
        if object.content.len() != object.size {
            return None;
        }
        let (kind, content) = match object.what {
            What::Unknown => return Some(()),
            What::Whole(kind) => (kind, object.content),
            What::Delta(base) => {
                let (kind, base) = self.bases.get(base)?;
                let content = apply(base, &object.content)?;
                self.inflated += content.len();
                (*kind, content)
            }
        };
        let name = ObjectId::of(self.hash, kind, &content);
        if kind == Kind::Commit {
            self.parents.insert(name, parents(&content));
        }
        let number = self.bases.len();
        self.by_offset.insert(object.offset, number);
        self.by_name.insert(name, number);
        self.bases.push((kind, content));
        Some(())
    }
}

/// What stands before an object.
pub(super) struct Head {
    pub(super) base: Base,
    /// Of the inflated object.
    size: usize,
    /// Of the head itself.
    pub(super) length: usize,
}

/// What an object rests on.
pub(super) enum Base {
    /// It is whole.
    None(Kind),
    /// So many bytes before.
    Before(u64),
    Named(ObjectId),
    /// A tree or a file.
    Content,
}

/// Reads an object's head; nothing where it is not whole, or makes no sense.
pub(super) fn read_head(bytes: &[u8], hash: Hash) -> Option<Head> {
    let mut rest = bytes.iter();
    let mut byte = *rest.next()?;
    let kind = byte >> 4 & 7;
    let (mut size, mut shift) = (usize::from(byte & 15), 4);
    while byte & 0x80 != 0 {
        byte = *rest.next()?;
        size |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
    }
    let base = match kind {
        1 => Base::None(Kind::Commit),
        4 => Base::None(Kind::Tag),
        6 => {
            byte = *rest.next()?;
            let mut distance = u64::from(byte & 0x7f);
            while byte & 0x80 != 0 {
                byte = *rest.next()?;
                distance = distance.checked_add(1)?.checked_mul(128)? + u64::from(byte & 0x7f);
            }
            Base::Before(distance)
        }
        7 => {
            let name = rest.as_slice().get(..hash.size())?;
            rest = rest.as_slice()[hash.size()..].iter();
            Base::Named(ObjectId::from_bytes(hash, name)?)
        }
        _ => Base::Content,
    };
    Some(Head {
        base,
        size,
        length: bytes.len() - rest.len(),
    })
}

/// Applies a delta (gitformat-pack, "Deltified representation").
fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut delta = delta;
    if varint(&mut delta)? != base.len() {
        return None;
    }
    let size = varint(&mut delta).filter(|size| *size <= LARGEST)?;
    let mut out = Vec::new();
    while let Some((first, rest)) = delta.split_first() {
        delta = rest;
        if first & 0x80 == 0 {
            let (added, rest) = delta
                .split_at_checked(usize::from(*first))
                .filter(|_| *first > 0)?;
            out.extend_from_slice(added);
            delta = rest;
        } else {
            let offset = copied(&mut delta, *first, 4)?;
            let length = match copied(&mut delta, first >> 4, 3)? {
                0 => 0x10000,
                length => length,
            };
            out.extend_from_slice(base.get(offset..offset.checked_add(length)?)?);
        }
        if out.len() > size {
            return None;
        }
    }
    (out.len() == size).then_some(out)
}

/// A little-endian number, of whose bytes only those stand there that `bits` names.
fn copied(delta: &mut &[u8], bits: u8, bytes: u32) -> Option<usize> {
    let mut number = 0;
    for place in (0..bytes).filter(|place| bits >> place & 1 == 1) {
        let (byte, rest) = delta.split_first()?;
        number |= usize::from(*byte) << (8 * place);
        *delta = rest;
    }
    Some(number)
}

fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let (mut number, mut shift) = (0, 0_u32);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
}
