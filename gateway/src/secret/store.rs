//! The local encrypted store: names and values in one file, AES-256-GCM under a key file beside it.
//!
//! `secrets.key` holds 32 random bytes, mode 0600, made at first start. `secrets.enc` holds a line that names the format,
//! a nonce, and the sealed entries; it is replaced whole, by rename. A file that does not open with the key is left alone.
use super::Value;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const FORMAT: &[u8] = b"sallyport-secrets-1\n";
const NONCE: usize = 12;
const KEY: usize = 32;

/// The store. Each call reads or replaces the file, so that what another process set is seen.
#[derive(Debug)]
pub struct SecretStore {
    folder: PathBuf,
}

/// Why the store did not do what was asked. The operator's to mend, except `Name` and `Size`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("`{}`: {error}", .path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The key is of the wrong size, or missing while there are secrets.
    #[error("`{}` {what}; put the right key back, or move `secrets.enc` away to begin anew", .path.display())]
    Key {
        /// Path of the key.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file does not open.
    #[error("`{}` does not open with the key beside it: another store's key, or the file was changed; nothing was overwritten", .0.display())]
    Sealed(PathBuf),
    /// Not a name.
    #[error("`{0}` is not a secret's name: 1 to 128 letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// Not a value.
    #[error("a secret's value has {least} to {most} bytes, not {given}", least = super::SHORTEST_VALUE, most = super::LONGEST_VALUE)]
    Size {
        /// Bytes given.
        given: usize,
    },
    /// The system failed at sealing.
    #[error("the cryptographic library failed; nothing was written")]
    Crypto,
}

type Entries = BTreeMap<String, Value>;

impl SecretStore {
    /// Opens the store in a folder; makes the key where there is neither key nor store. Fails where the file does not open.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let store = Self {
            folder: folder.to_owned(),
        };
        let _lock = store.lock()?;
        if !store.key_path().exists() {
            if store.data_path().exists() {
                return Err(StoreError::Key {
                    path: store.key_path(),
                    what: "is missing while there are secrets",
                });
            }
            let mut key = Zeroizing::new([0; KEY]);
            aws_lc_rs::rand::fill(&mut *key).map_err(|_| StoreError::Crypto)?;
            store.replace(&store.key_path(), &*key)?;
        }
        store.entries()?;
        Ok(store)
    }

    /// The value of a name, if it is set.
    pub fn value(&self, name: &str) -> Result<Option<Value>, StoreError> {
        Ok(self.entries()?.remove(name))
    }

    /// All names, in order.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.entries()?.into_keys().collect())
    }

    /// Sets or replaces a value. Durable when it returns.
    pub fn set(&self, name: &str, value: Value) -> Result<(), StoreError> {
        check_name(name)?;
        let given = value.bytes().len();
        if !(super::SHORTEST_VALUE..=super::LONGEST_VALUE).contains(&given) {
            return Err(StoreError::Size { given });
        }
        let _lock = self.lock()?;
        let mut entries = self.entries()?;
        entries.insert(name.to_owned(), value);
        self.seal(&entries)
    }

    /// Removes a name; whether it was there.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let _lock = self.lock()?;
        let mut entries = self.entries()?;
        if entries.remove(name).is_none() {
            return Ok(false);
        }
        self.seal(&entries).map(|()| true)
    }

    fn key_path(&self) -> PathBuf {
        self.folder.join("secrets.key")
    }

    fn data_path(&self) -> PathBuf {
        self.folder.join("secrets.enc")
    }

    /// One writer at a time, over processes; let go when dropped.
    fn lock(&self) -> Result<File, StoreError> {
        let path = self.folder.join("secrets.lock");
        let fail = |error: io::Error| StoreError::File {
            path: path.clone(),
            error,
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
        Ok(file)
    }

    fn cipher(&self) -> Result<RandomizedNonceKey, StoreError> {
        let path = self.key_path();
        let mut key = Zeroizing::new(Vec::new());
        File::open(&path)
            .and_then(|file| file.take(KEY as u64 + 1).read_to_end(&mut key))
            .map_err(|error| StoreError::File {
                path: path.clone(),
                error,
            })?;
        if key.len() != KEY {
            return Err(StoreError::Key {
                path,
                what: "is not 32 bytes long",
            });
        }
        RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| StoreError::Crypto)
    }

    fn entries(&self) -> Result<Entries, StoreError> {
        let path = self.data_path();
        let sealed = match std::fs::read(&path) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
            Err(error) => return Err(StoreError::File { path, error }),
        };
        let damaged = || StoreError::Sealed(path.clone());
        let body = sealed.strip_prefix(FORMAT).ok_or_else(damaged)?;
        let (nonce, body) = body.split_first_chunk::<NONCE>().ok_or_else(damaged)?;
        let mut body = Zeroizing::new(body.to_vec());
        let plain = self
            .cipher()?
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(FORMAT), &mut body)
            .map_err(|_| damaged())?;
        decode(plain).ok_or_else(damaged)
    }

    fn seal(&self, entries: &Entries) -> Result<(), StoreError> {
        let mut body = encode(entries);
        let nonce = self
            .cipher()?
            .seal_in_place_append_tag(Aad::from(FORMAT), &mut *body)
            .map_err(|_| StoreError::Crypto)?;
        self.replace(&self.data_path(), &[FORMAT, nonce.as_ref(), &body].concat())
    }

    /// Puts a whole file in place: written beside, synced, renamed, the folder synced.
    fn replace(&self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        let beside = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&beside, path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| StoreError::File {
            path: path.to_owned(),
            error,
        })
    }
}

/// Whether a text may name a secret.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(fine) {
        return Ok(());
    }
    Err(StoreError::Name(
        name.chars().take(128).flat_map(char::escape_default).collect(),
    ))
}

/// Name and value, each behind its length (32 bits, big-endian).
fn encode(entries: &Entries) -> Zeroizing<Vec<u8>> {
    let size: usize = entries
        .iter()
        .map(|(name, value)| 8 + name.len() + value.bytes().len())
        .sum();
    // Room for the tag too, so that nothing is moved and left behind.
    let mut plain = Zeroizing::new(Vec::with_capacity(size + AES_256_GCM.tag_len()));
    for (name, value) in entries {
        for part in [name.as_bytes(), value.bytes()] {
            plain.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            plain.extend_from_slice(part);
        }
    }
    plain
}

fn decode(mut plain: &[u8]) -> Option<Entries> {
    let mut entries = Entries::new();
    while !plain.is_empty() {
        let mut part = || -> Option<&[u8]> {
            let (length, rest) = plain.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            plain = rest;
            Some(part)
        };
        let name = std::str::from_utf8(part()?).ok()?.to_owned();
        let value = Value::new(part()?.to_vec());
        entries.insert(name, value);
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text.as_bytes().to_vec())
    }

    #[test]
    fn what_is_set_is_read_back_after_reopening_and_nothing_lies_in_clear() {
        let folder = tempfile::tempdir().unwrap();
        let store = SecretStore::open(folder.path()).unwrap();
        store.set("forge", value("open sesame")).unwrap();
        store.set("forge", value("shut sesame")).unwrap();
        store.set("model.key-1", value("0123456789")).unwrap();
        let again = SecretStore::open(folder.path()).unwrap();
        assert_eq!(again.names().unwrap(), ["forge", "model.key-1"]);
        assert_eq!(again.value("forge").unwrap().unwrap().bytes(), b"shut sesame");
        assert!(again.remove("forge").unwrap());
        assert!(!again.remove("forge").unwrap());
        assert!(store.value("forge").unwrap().is_none());
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{file:?}"
            );
            let content = std::fs::read(file.path()).unwrap();
            assert!(
                !content.windows(10).any(|window| window == b"0123456789"),
                "{file:?}"
            );
        }
    }

    #[test]
    fn a_foreign_key_is_named_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        SecretStore::open(folder.path())
            .unwrap()
            .set("forge", value("open sesame"))
            .unwrap();
        let before = std::fs::read(folder.path().join("secrets.enc")).unwrap();
        std::fs::write(folder.path().join("secrets.key"), [7; 32]).unwrap();
        let error = SecretStore::open(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Sealed(_)), "{error}");
        assert_eq!(std::fs::read(folder.path().join("secrets.enc")).unwrap(), before);
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = SecretStore::open(folder.path()).unwrap();
        store.set("forge", value("open sesame")).unwrap();
        let path = folder.path().join("secrets.enc");
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, torn).unwrap();
            assert!(
                matches!(store.value("forge"), Err(StoreError::Sealed(_))),
                "byte {at}"
            );
        }
        std::fs::write(&path, &whole[..20]).unwrap();
        assert!(matches!(
            store.set("other", value("open sesame")),
            Err(StoreError::Sealed(_))
        ));
        assert_eq!(std::fs::read(&path).unwrap(), whole[..20]);
    }

    #[test]
    fn a_missing_key_is_not_made_anew_over_secrets() {
        let folder = tempfile::tempdir().unwrap();
        SecretStore::open(folder.path())
            .unwrap()
            .set("forge", value("open sesame"))
            .unwrap();
        std::fs::remove_file(folder.path().join("secrets.key")).unwrap();
        assert!(matches!(
            SecretStore::open(folder.path()),
            Err(StoreError::Key { .. })
        ));
        std::fs::write(folder.path().join("secrets.key"), b"short").unwrap();
        assert!(matches!(
            SecretStore::open(folder.path()),
            Err(StoreError::Key { .. })
        ));
    }

    #[test]
    fn names_and_sizes_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let store = SecretStore::open(folder.path()).unwrap();
        assert!(matches!(
            store.set("../x", value("open sesame")),
            Err(StoreError::Name(_))
        ));
        assert!(matches!(
            store.set("", value("open sesame")),
            Err(StoreError::Name(_))
        ));
        assert!(matches!(
            store.set("x", value("short")),
            Err(StoreError::Size { given: 5 })
        ));
        let long = Value::new(vec![b'x'; super::super::LONGEST_VALUE + 1]);
        assert!(matches!(store.set("x", long), Err(StoreError::Size { .. })));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let error = SecretStore::open(Path::new("/proc/nothing"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/proc/nothing"), "{error}");
    }
}
