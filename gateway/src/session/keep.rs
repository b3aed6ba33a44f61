//! What outlives the gateway's process of each session, in one redb file.
//!
//! An entry is the SHA-256 of its JSON, then the JSON: redb alone does not notice flipped bytes. The file is made under
//! another name and renamed, since one that was cut during its making does not open.
use crate::control::types::SessionSpec;
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use sallyport_policy::Grant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const SESSIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sessions");
/// Bytes sent out under each bounded rule of a session.
const SPENT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("spent");
const DIGEST: usize = 32;

/// One session on disk. Holds placeholders and a proxy password, never a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) spec: SessionSpec,
    pub(super) proxy_token: String,
    /// By credential; the first is the one shown.
    pub(super) placeholders: BTreeMap<String, Vec<String>>,
    pub(super) grants: Vec<Grant>,
}

/// The state could not be read or written; the operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {what}", .path.display())]
pub struct StateError {
    path: PathBuf,
    what: String,
}

/// The file of sessions.
pub(super) struct Keeper {
    path: PathBuf,
    database: Database,
}

impl Keeper {
    /// Opens the file, or makes it.
    pub(super) fn open(folder: &Path) -> Result<Self, StateError> {
        let path = folder.join("sessions.redb");
        if !path.exists() {
            make(folder, &path).map_err(|what| StateError {
                path: path.clone(),
                what,
            })?;
        }
        let database = Database::open(&path).map_err(|error| StateError {
            path: path.clone(),
            what: format!(
                "{error}; put a copy back, or move the file away: the supervisor then opens its sessions anew, with new placeholders"
            ),
        })?;
        Ok(Self { path, database })
    }

    /// Every session; an entry that does not fit its checksum is an error.
    pub(super) fn all(&self) -> Result<Vec<(String, Kept)>, StateError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = read.open_table(SESSIONS).map_err(|error| self.fail(error))?;
        let mut all = Vec::new();
        for entry in table.iter().map_err(|error| self.fail(error))? {
            let (id, bytes) = entry.map_err(|error| self.fail(error))?;
            all.push((id.value().to_owned(), self.decode(id.value(), bytes.value())?));
        }
        Ok(all)
    }

    /// One session.
    pub(super) fn load(&self, id: &str) -> Result<Option<Kept>, StateError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = read.open_table(SESSIONS).map_err(|error| self.fail(error))?;
        let entry = table.get(id).map_err(|error| self.fail(error))?;
        entry.map(|bytes| self.decode(id, bytes.value())).transpose()
    }

    /// Writes a session; durable when it returns.
    pub(super) fn save(&self, id: &str, kept: &Kept) -> Result<(), StateError> {
        self.write(SESSIONS, id, kept)
    }

    /// Bytes sent out so far, by rule; nothing where none was ever written.
    pub(super) fn spent(&self, id: &str) -> Result<BTreeMap<String, u64>, StateError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = match read.open_table(SPENT) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            opened => opened.map_err(|error| self.fail(error))?,
        };
        let entry = table.get(id).map_err(|error| self.fail(error))?;
        let spent = entry.map(|bytes| self.decode(id, bytes.value())).transpose()?;
        Ok(spent.unwrap_or_default())
    }

    /// Writes bytes sent out; durable when it returns.
    pub(super) fn save_spent(&self, id: &str, spent: &BTreeMap<String, u64>) -> Result<(), StateError> {
        self.write(SPENT, id, spent)
    }

    fn write(
        &self,
        table: TableDefinition<'_, &str, &[u8]>,
        id: &str,
        value: &impl Serialize,
    ) -> Result<(), StateError> {
        let json = serde_json::to_vec(value).map_err(|error| self.fail(error))?;
        let bytes = [Sha256::digest(&json).as_slice(), &json].concat();
        let write = self.database.begin_write().map_err(|error| self.fail(error))?;
        {
            let mut table = write.open_table(table).map_err(|error| self.fail(error))?;
            table
                .insert(id, bytes.as_slice())
                .map_err(|error| self.fail(error))?;
        }
        write.commit().map_err(|error| self.fail(error))
    }

    /// Removes a session; durable when it returns.
    pub(super) fn remove(&self, id: &str) -> Result<(), StateError> {
        let write = self.database.begin_write().map_err(|error| self.fail(error))?;
        {
            for table in [SESSIONS, SPENT] {
                let mut table = write.open_table(table).map_err(|error| self.fail(error))?;
                table.remove(id).map_err(|error| self.fail(error))?;
            }
        }
        write.commit().map_err(|error| self.fail(error))
    }

    fn decode<T: DeserializeOwned>(&self, id: &str, bytes: &[u8]) -> Result<T, StateError> {
        let fitting = bytes
            .split_first_chunk::<DIGEST>()
            .filter(|(digest, json)| Sha256::digest(json).as_slice() == digest.as_slice());
        let Some((_, json)) = fitting else {
            return Err(self.fail(format!("the entry of session `{id}` was damaged on disk")));
        };
        serde_json::from_slice(json)
            .map_err(|error| self.fail(format!("the entry of session `{id}`: {error}")))
    }

    fn fail(&self, what: impl ToString) -> StateError {
        StateError {
            path: self.path.clone(),
            what: what.to_string(),
        }
    }
}

fn make(folder: &Path, path: &Path) -> Result<(), String> {
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
    write.open_table(SESSIONS).map_err(|error| error.to_string())?;
    write.commit().map_err(|error| error.to_string())?;
    drop(database);
    std::fs::rename(&beside, path).map_err(|error| error.to_string())?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| error.to_string())
}
