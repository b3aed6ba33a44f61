//! The local encrypted store: names and values in one file, AES-256-GCM under a key of its own.
//!
//! `secrets.enc` holds a head, a nonce, and the sealed entries; it is replaced whole, by rename. The head is a line that names the
//! format and, where the key is made from a passphrase, a line that says how; else the key is a file of 32 random bytes, mode 0600,
//! made at first start. A file that does not open with the key is left alone.
//!
//! Whatever is interrupted, one key opens the file: a new key file is first put beside the old one (`secrets.key.next`), then the
//! entries are sealed with it, then it takes the old one's place.
use super::Value;
use key::{Key, Recipe};
use rustix::fs::{FlockOperation, flock};
use sealed::{Entries, parts};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

mod error;
mod key;
mod sealed;

pub use error::{CREDENTIAL, StoreError};
pub use key::{Cost, Keys, NewKey, Passphrase};

/// The store. Each call reads or replaces the file, so that what another process set is seen.
#[derive(Debug)]
pub struct SecretStore {
    folder: PathBuf,
    keys: Keys,
    /// The key that was made from the passphrase last, since making it is slow on purpose.
    made: Mutex<Option<(Recipe, Key)>>,
}

impl SecretStore {
    /// Opens the store in a folder, with a key file beside it; see [`Self::open_with`].
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::open_with(folder, Keys::default())
    }

    /// Opens the store in a folder; makes the key file where there is neither key nor store. Fails where the file does not open.
    /// A change of keys that was interrupted is brought to its end.
    pub fn open_with(folder: &Path, keys: Keys) -> Result<Self, StoreError> {
        let store = Self {
            folder: folder.to_owned(),
            keys,
            made: Mutex::new(None),
        };
        let _lock = store.lock()?;
        let (key, next) = (store.key_path(), store.next_path());
        if store.head()?.is_none() && !key.exists() {
            if next.exists() {
                store.rename(&next, &key)?;
            } else if store.data_path().exists() {
                return Err(StoreError::Key {
                    path: key,
                    what: "is missing while there are secrets",
                });
            } else {
                store.replace(&key, Key::random()?.bytes())?;
            }
        }
        store.entries()?;
        store.settle()?;
        Ok(store)
    }

    /// Whether a store in this folder opens by a passphrase only.
    pub fn needs_passphrase(folder: &Path) -> Result<bool, StoreError> {
        let store = Self {
            folder: folder.to_owned(),
            keys: Keys::default(),
            made: Mutex::new(None),
        };
        Ok(store.head()?.is_some())
    }

    /// How the key is made, in words for people.
    pub fn key_in_words(&self) -> Result<String, StoreError> {
        Ok(match self.head()? {
            Some(recipe) => format!("a passphrase, by {recipe}"),
            None => format!("the key file `{}`", self.key_path().display()),
        })
    }

    /// Seals everything under another key. Durable when it returns; one of the two keys opens the file at every moment.
    pub fn rekey(&self, new: NewKey) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        let entries = self.entries()?;
        match new {
            NewKey::File => {
                let (key, next) = (Key::random()?, self.next_path());
                self.replace(&next, key.bytes())?;
                self.seal_with(&entries, None, &key)?;
                self.rename(&next, &self.key_path())
            }
            NewKey::Passphrase(passphrase, cost) => {
                let recipe = Recipe::fresh(cost)?;
                let key = recipe.make(&passphrase)?;
                self.seal_with(&entries, Some(&recipe), &key)?;
                self.settle()
            }
        }
    }

    /// Replaces the value of a name that has one. Durable when it returns.
    pub fn rotate(&self, name: &str, value: Value) -> Result<(), StoreError> {
        match self.value(name)? {
            None => Err(StoreError::Unknown(shown(name))),
            Some(old) if old.is_same(&value) => Err(StoreError::Same(shown(name))),
            Some(_) => self.set(name, value),
        }
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
        let beside = || self.folder.join("secrets.key");
        self.keys.file.clone().unwrap_or_else(beside)
    }

    /// A key file that takes the place of the other once the entries are sealed with it.
    fn next_path(&self) -> PathBuf {
        let mut path = self.key_path().into_os_string();
        path.push(".next");
        path.into()
    }

    /// Removes what a change of keys left behind: a new key that nothing was sealed with, an old one that opens nothing any more.
    fn settle(&self) -> Result<(), StoreError> {
        let (key, next) = (self.key_path(), self.next_path());
        if self.head()?.is_some() {
            self.remove_file(&next)?;
            // A key file elsewhere is the operator's own.
            return match self.keys.file {
                Some(_) => Ok(()),
                None => self.remove_file(&key),
            };
        }
        if !next.exists() {
            return Ok(());
        }
        match self.read_with(&Key::read(&key)?)? {
            Some(_) => self.remove_file(&next),
            None => self.rename(&next, &key),
        }
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

    /// How the key is made; none where it is a file, or where there is no store yet.
    fn head(&self) -> Result<Option<Recipe>, StoreError> {
        let Some(sealed) = self.sealed()? else {
            return Ok(None);
        };
        Ok(parts(&sealed)
            .ok_or_else(|| StoreError::Sealed(self.data_path()))?
            .recipe)
    }

    fn sealed(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.data_path();
        match std::fs::read(&path) {
            Ok(sealed) => Ok(Some(sealed)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::File { path, error }),
        }
    }

    fn entries(&self) -> Result<Entries, StoreError> {
        let Some(sealed) = self.sealed()? else {
            return Ok(Entries::new());
        };
        let damaged = || StoreError::Sealed(self.data_path());
        let parts = parts(&sealed).ok_or_else(damaged)?;
        if let Some(recipe) = &parts.recipe {
            let key = self.made(recipe)?;
            return parts
                .open(&key)
                .ok_or_else(|| StoreError::Passphrase(self.data_path()));
        }
        let key = Key::read(&self.key_path());
        if let Some(entries) = key.as_ref().ok().and_then(|key| parts.open(key)) {
            return Ok(entries);
        }
        // Between two steps of another process that changes the key.
        let next = self.next_path();
        if next.exists()
            && let Some(entries) = parts.open(&Key::read(&next)?)
        {
            return Ok(entries);
        }
        key.and_then(|_| Err(damaged()))
    }

    /// The entries, if the file is one whose key is this.
    fn read_with(&self, key: &Key) -> Result<Option<Entries>, StoreError> {
        Ok(match self.sealed()? {
            Some(sealed) => parts(&sealed).and_then(|parts| parts.open(key)),
            None => Some(Entries::new()),
        })
    }

    /// The key of the passphrase that was given, by this recipe.
    fn made(&self, recipe: &Recipe) -> Result<Key, StoreError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, key)) = made.as_ref()
            && known == recipe
        {
            return Ok(key.again());
        }
        let Some(passphrase) = &self.keys.passphrase else {
            return Err(StoreError::Locked(self.data_path()));
        };
        let key = recipe.make(passphrase)?;
        *made = Some((recipe.clone(), key.again()));
        Ok(key)
    }

    /// Seals under the key that the file has.
    fn seal(&self, entries: &Entries) -> Result<(), StoreError> {
        match self.head()? {
            Some(recipe) => self.seal_with(entries, Some(&recipe), &self.made(&recipe)?),
            None => self.seal_with(entries, None, &Key::read(&self.key_path())?),
        }
    }

    fn seal_with(&self, entries: &Entries, recipe: Option<&Recipe>, key: &Key) -> Result<(), StoreError> {
        self.replace(&self.data_path(), &sealed::seal(entries, recipe, key)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        std::fs::rename(from, to)
            .and_then(|()| sync_folder(to))
            .map_err(|error| StoreError::File {
                path: to.to_owned(),
                error,
            })
    }

    fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::File {
                path: path.to_owned(),
                error,
            }),
            _ => Ok(()),
        }
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
            sync_folder(path)
        };
        write().map_err(|error| StoreError::File {
            path: path.to_owned(),
            error,
        })
    }
}

/// What was put into a folder is there after a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Whether a text may name a secret.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(fine) {
        return Ok(());
    }
    Err(StoreError::Name(shown(name)))
}

fn shown(name: &str) -> String {
    name.chars().take(128).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests;
