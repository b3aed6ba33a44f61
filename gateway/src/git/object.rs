//! Git's objects: their names, and who is a commit's parent (gitformat-pack, git-hash-object). Pure.
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;

/// The name of an object: a hash over its content, SHA-1 or SHA-256 by the repository's format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    hash: Hash,
    /// SHA-1 fills the first 20.
    bytes: [u8; 32],
}

/// Which hash names objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl Hash {
    /// Bytes of a name.
    pub fn size(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes[..self.hash.size()]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl ObjectId {
    /// Reads 40 or 64 hex digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let hash = match digits.len() {
            40 => Hash::Sha1,
            64 => Hash::Sha256,
            _ => return None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            for digit in pair {
                *byte = *byte << 4 | u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
            }
        }
        Some(Self { hash, bytes })
    }

    /// Takes raw bytes, as many as the hash has.
    pub fn from_bytes(hash: Hash, raw: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        (raw.len() == hash.size()).then(|| bytes[..raw.len()].copy_from_slice(raw))?;
        Some(Self { hash, bytes })
    }

    /// The name of an object of this kind with this content.
    pub fn of(hash: Hash, kind: Kind, content: &[u8]) -> Self {
        let head = format!("{} {}\0", kind.word(), content.len());
        let mut bytes = [0; 32];
        match hash {
            Hash::Sha1 => {
                bytes[..20].copy_from_slice(&Sha1::new().chain_update(head).chain_update(content).finalize());
            }
            Hash::Sha256 => {
                bytes.copy_from_slice(&Sha256::new().chain_update(head).chain_update(content).finalize());
            }
        }
        Self { hash, bytes }
    }

    /// All zeros, which stand for no object.
    pub fn is_zero(&self) -> bool {
        self.bytes == [0; 32]
    }

    /// Which hash it is of.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

/// The kinds that can stand before others in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tag => "tag",
        }
    }
}

/// The parents of a commit: the lines that follow the first, which names its tree.
pub fn parents(commit: &[u8]) -> Vec<ObjectId> {
    let mut lines = commit.split(|byte| *byte == b'\n');
    if !lines.next().is_some_and(|line| line.starts_with(b"tree ")) {
        return Vec::new();
    }
    lines
        .map_while(|line| ObjectId::parse(line.strip_prefix(b"parent ")?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_git_gives() {
        // `git hash-object -t commit` of this text.
        let commit = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
            parent 0123456789012345678901234567890123456789\n\
            author A <a@b.test> 0 +0000\ncommitter A <a@b.test> 0 +0000\n\nparent 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n";
        let parent = ObjectId::parse(b"0123456789012345678901234567890123456789").unwrap();
        assert_eq!(parents(commit), [parent]);
        let name = ObjectId::of(Hash::Sha1, Kind::Commit, commit);
        assert_eq!(format!("{name:?}"), "41c908856264aa1cc66824bf8becec9a35925366");
        let empty = ObjectId::of(Hash::Sha1, Kind::Tag, b"");
        assert_eq!(format!("{empty:?}"), "d994c6bb648123a17e8f70a966857c546b2a6f94");
        assert_eq!(
            parents(b"author x\nparent 0123456789012345678901234567890123456789"),
            []
        );
    }

    #[test]
    fn only_whole_hex_names_are_names() {
        for wrong in [&b""[..], &[b'0'; 39], &[b'0'; 41], &[b'g'; 40]] {
            assert_eq!(ObjectId::parse(wrong), None);
        }
        assert!(ObjectId::parse(&[b'0'; 64]).unwrap().is_zero());
    }
}
