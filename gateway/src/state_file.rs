//! A redb file of JSON entries, each with its checksum: redb alone does not notice flipped bytes.
//!
//! An entry is the SHA-256 of its JSON, then the JSON. The file is made under another name and renamed, since one that was
//! cut during its making does not open.
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, TableDefinition, TableError, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const DIGEST: usize = 32;

/// A table by name; keys are text.
pub(crate) type Table = TableDefinition<'static, &'static str, &'static [u8]>;

/// The state could not be read or written; the operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {what}", .path.display())]
pub struct StateError {
    path: PathBuf,
    what: String,
}

impl StateError {
    /// What went wrong with a file or folder beside.
    pub(crate) fn new(path: &Path, what: impl ToString) -> Self {
        Self {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}

/// One file.
pub(crate) struct StateFile {
    path: PathBuf,
    database: Database,
}

/// Changes that become durable together.
pub(crate) struct Changes<'a> {
    file: &'a StateFile,
    write: WriteTransaction,
}

impl StateFile {
    /// Opens the file in a folder, or makes it with these tables. `mend` says what helps where it is damaged.
    pub(crate) fn open(folder: &Path, name: &str, tables: &[Table], mend: &str) -> Result<Self, StateError> {
        let path = folder.join(name);
        if !path.exists() {
            make(folder, &path, tables).map_err(|what| StateError {
                path: path.clone(),
                what,
            })?;
        }
        let database = Database::open(&path).map_err(|error| StateError {
            path: path.clone(),
            what: format!("{error}; put a copy back, or move the file away: {mend}"),
        })?;
        Ok(Self { path, database })
    }

    /// Every entry of a table from one key to before another, by key; one that does not fit its checksum is an error.
    pub(crate) fn range<T: DeserializeOwned>(
        &self,
        table: Table,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<(String, T)>, StateError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = read.open_table(table).map_err(|error| self.fail(error))?;
        let entries = match to {
            Some(to) => table.range(from..to),
            None => table.range(from..),
        };
        let mut all = Vec::new();
        for entry in entries.map_err(|error| self.fail(error))? {
            let (key, bytes) = entry.map_err(|error| self.fail(error))?;
            all.push((key.value().to_owned(), self.decode(key.value(), bytes.value())?));
        }
        Ok(all)
    }

    /// One entry; none where the file is older than the table.
    pub(crate) fn get<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StateError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = match read.open_table(table) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            opened => opened.map_err(|error| self.fail(error))?,
        };
        let entry = table.get(key).map_err(|error| self.fail(error))?;
        entry.map(|bytes| self.decode(key, bytes.value())).transpose()
    }

    /// Begins changes; nothing happens before they are committed.
    pub(crate) fn change(&self) -> Result<Changes<'_>, StateError> {
        let write = self.database.begin_write().map_err(|error| self.fail(error))?;
        Ok(Changes { file: self, write })
    }

    fn decode<T: DeserializeOwned>(&self, key: &str, bytes: &[u8]) -> Result<T, StateError> {
        let fitting = bytes
            .split_first_chunk::<DIGEST>()
            .filter(|(digest, json)| Sha256::digest(json).as_slice() == digest.as_slice());
        let Some((_, json)) = fitting else {
            return Err(self.fail(format!("the entry of `{key}` was damaged on disk")));
        };
        serde_json::from_slice(json).map_err(|error| self.fail(format!("the entry of `{key}`: {error}")))
    }

    fn fail(&self, what: impl ToString) -> StateError {
        StateError {
            path: self.path.clone(),
            what: what.to_string(),
        }
    }
}

impl Changes<'_> {
    /// Puts an entry.
    pub(crate) fn put(&mut self, table: Table, key: &str, value: &impl Serialize) -> Result<(), StateError> {
        let json = serde_json::to_vec(value).map_err(|error| self.file.fail(error))?;
        let bytes = [Sha256::digest(&json).as_slice(), &json].concat();
        let mut table = self
            .write
            .open_table(table)
            .map_err(|error| self.file.fail(error))?;
        table
            .insert(key, bytes.as_slice())
            .map_err(|error| self.file.fail(error))?;
        Ok(())
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, table: Table, key: &str) -> Result<(), StateError> {
        let mut table = self
            .write
            .open_table(table)
            .map_err(|error| self.file.fail(error))?;
        table.remove(key).map_err(|error| self.file.fail(error))?;
        Ok(())
    }

    /// Durable when it returns.
    pub(crate) fn commit(self) -> Result<(), StateError> {
        self.write.commit().map_err(|error| self.file.fail(error))
    }
}

fn make(folder: &Path, path: &Path, tables: &[Table]) -> Result<(), String> {
    let beside = path.with_extension("new");
    let file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(|error| error.to_string())?;
    let backend = FileBackend::new(file).map_err(|error| error.to_string())?;
    let database = Database::builder()
        .create_with_backend(backend)
        .map_err(|error| error.to_string())?;
    let write = database.begin_write().map_err(|error| error.to_string())?;
    for table in tables {
        write.open_table(*table).map_err(|error| error.to_string())?;
    }
    write.commit().map_err(|error| error.to_string())?;
    drop(database);
    std::fs::rename(&beside, path).map_err(|error| error.to_string())?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| error.to_string())
}
