//! The store's key: a file of random bytes, or made from a passphrase by Argon2id (RFC 9106).
use super::error::{SHORTEST_PASSPHRASE, StoreError};
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(super) const KEY: usize = 32;
const SALT: usize = 16;
/// Bounds of what a store's head may ask for: a changed one must not use up the machine.
const MOST: Cost = Cost {
    memory_kib: 2 << 20,
    passes: 100,
    lanes: 16,
};

/// What was given to open a store with.
#[derive(Debug, Default)]
pub struct Keys {
    /// Where the key file is, if not beside the store.
    pub file: Option<PathBuf>,
    /// The passphrase, if one was given.
    pub passphrase: Option<Passphrase>,
}

/// A passphrase. Wiped when dropped, never shown.
pub struct Passphrase(Zeroizing<Vec<u8>>);

/// What a store shall be sealed with from now on.
#[derive(Debug)]
pub enum NewKey {
    /// A new key file in the place of the old one.
    File,
    /// A passphrase, at this cost.
    Passphrase(Passphrase, Cost),
}

/// What Argon2id costs whoever guesses, and us at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for Cost {
    /// RFC 9106 section 4, the second recommendation, on one lane.
    fn default() -> Self {
        Self {
            memory_kib: 64 << 10,
            passes: 3,
            lanes: 1,
        }
    }
}

impl Passphrase {
    /// One that opens what is there; a line end at its end is not a part of it.
    pub fn given(text: &[u8]) -> Self {
        Self(Zeroizing::new(
            crate::secret::source::without_line_end(text).to_vec(),
        ))
    }

    /// One to protect a store with from now on.
    pub fn new(text: &[u8]) -> Result<Self, StoreError> {
        let passphrase = Self::given(text);
        match String::from_utf8_lossy(&passphrase.0).chars().count() {
            count if count < SHORTEST_PASSPHRASE => Err(StoreError::Short),
            _ => Ok(passphrase),
        }
    }

    /// Whether two are the same, in constant time for one length.
    pub fn is_same(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[passphrase]")
    }
}

/// A key; wiped when dropped.
pub(super) struct Key(Zeroizing<[u8; KEY]>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

impl Key {
    pub(super) fn random() -> Result<Self, StoreError> {
        let mut key = Zeroizing::new([0; KEY]);
        aws_lc_rs::rand::fill(&mut *key).map_err(|_| StoreError::Crypto)?;
        Ok(Self(key))
    }

    /// A key file.
    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(KEY + 1));
        File::open(path)
            .and_then(|file| file.take(KEY as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| StoreError::File {
                path: path.to_owned(),
                error,
            })?;
        let Ok(key) = <[u8; KEY]>::try_from(bytes.as_slice()) else {
            return Err(StoreError::Key {
                path: path.to_owned(),
                what: "is not 32 bytes long",
            });
        };
        Ok(Self(Zeroizing::new(key)))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    /// Another copy.
    pub(super) fn again(&self) -> Self {
        Self(self.0.clone())
    }

    pub(super) fn cipher(&self) -> Result<RandomizedNonceKey, StoreError> {
        RandomizedNonceKey::new(&AES_256_GCM, &*self.0).map_err(|_| StoreError::Crypto)
    }
}

/// How a key is made from a passphrase; stands in the store's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    kdf: Kdf,
    cost: Cost,
    /// In base64.
    salt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kdf {
    Argon2id,
}

impl Recipe {
    /// With a new salt.
    pub(super) fn fresh(cost: Cost) -> Result<Self, StoreError> {
        let mut salt = [0; SALT];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| StoreError::Crypto)?;
        Ok(Self {
            kdf: Kdf::Argon2id,
            cost,
            salt: STANDARD.encode(salt),
        })
    }

    /// The line in the head; none where it is no such line, or asks for too much.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let recipe: Self = serde_json::from_slice(line).ok()?;
        let Cost {
            memory_kib,
            passes,
            lanes,
        } = recipe.cost;
        (memory_kib <= MOST.memory_kib && passes <= MOST.passes && lanes <= MOST.lanes).then_some(recipe)
    }

    pub(super) fn line(&self) -> Result<String, StoreError> {
        let line = serde_json::to_string(self).map_err(|_| StoreError::Crypto)?;
        Ok(line + "\n")
    }

    /// Slow, and uses much memory for a moment.
    pub(super) fn make(&self, passphrase: &Passphrase) -> Result<Key, StoreError> {
        let Cost {
            memory_kib,
            passes,
            lanes,
        } = self.cost;
        let params = Params::new(memory_kib, passes, lanes, Some(KEY)).map_err(|_| StoreError::Crypto)?;
        let salt = STANDARD.decode(&self.salt).map_err(|_| StoreError::Crypto)?;
        let mut key = Zeroizing::new([0; KEY]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(&passphrase.0, &salt, &mut *key)
            .map_err(|_| StoreError::Crypto)?;
        Ok(Key(key))
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost {
            memory_kib,
            passes,
            lanes,
        } = self.cost;
        write!(
            f,
            "Argon2id with {memory_kib} KiB, {passes} passes, {lanes} lanes"
        )
    }
}
