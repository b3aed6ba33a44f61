//! What outlives the gateway's process of each session, in one redb file.
use super::Session;
use crate::control::types::SessionSpec;
pub use crate::state_file::StateError;
use crate::state_file::{StateFile, Table};
use jiff::Timestamp;
use sallyport_policy::Grant;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const SESSIONS: Table = Table::new("sessions");
/// Bytes sent out under each bounded rule of a session.
const SPENT: Table = Table::new("spent");

/// One session on disk. Holds placeholders and a proxy password, never a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) spec: SessionSpec,
    pub(super) proxy_token: String,
    /// By credential; the first is the one shown.
    pub(super) placeholders: BTreeMap<String, Vec<String>>,
    pub(super) grants: Vec<Grant>,
    /// Of its machine, the newest last.
    #[serde(default)]
    pub(super) certificates: Vec<Certificate>,
    /// Fingerprint of the authority that the machine was told to trust.
    #[serde(default)]
    pub(super) authority: Option<String>,
}

/// A certificate that was issued for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// SHA-256 of its DER, hex.
    pub fingerprint: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Folder of the files in which the names of sessions outlive the process.
const NAMES: &str = "names";
/// What follows the session's id in the name of such a file.
const SUFFIX: &str = ".names";

/// The file of sessions, and the folder beside it.
pub(super) struct Keeper {
    file: StateFile,
    names: PathBuf,
}

impl Keeper {
    /// Opens the file, or makes it.
    pub(super) fn open(folder: &Path) -> Result<Self, StateError> {
        let mend = "the supervisor then opens its sessions anew, with new placeholders";
        let names = folder.join(NAMES);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&names)
            .map_err(|error| StateError::new(&names, error))?;
        Ok(Self {
            file: StateFile::open(folder, "sessions.redb", &[SESSIONS, SPENT], mend)?,
            names,
        })
    }

    /// Where the names of a session are kept. No id leads out of the folder, since none has a slash.
    pub(super) fn names(&self, id: &str) -> PathBuf {
        self.names.join(format!("{id}{SUFFIX}"))
    }

    /// Every session; an entry that does not fit its checksum is an error.
    pub(super) fn all(&self) -> Result<Vec<(String, Kept)>, StateError> {
        self.file.range(SESSIONS, "", None)
    }

    /// One session.
    pub(super) fn load(&self, id: &str) -> Result<Option<Kept>, StateError> {
        self.file.get(SESSIONS, id)
    }

    /// Writes a session; durable when it returns.
    pub(super) fn save(&self, id: &str, kept: &Kept) -> Result<(), StateError> {
        self.write(SESSIONS, id, kept)
    }

    /// Bytes sent out so far, by rule; nothing where none was ever written.
    pub(super) fn spent(&self, id: &str) -> Result<BTreeMap<String, u64>, StateError> {
        Ok(self.file.get(SPENT, id)?.unwrap_or_default())
    }

    /// Writes bytes sent out; durable when it returns.
    pub(super) fn save_spent(&self, id: &str, spent: &BTreeMap<String, u64>) -> Result<(), StateError> {
        self.write(SPENT, id, spent)
    }

    fn write(&self, table: Table, id: &str, value: &impl Serialize) -> Result<(), StateError> {
        let mut changes = self.file.change()?;
        changes.put(table, id, value)?;
        changes.commit()
    }

    /// Removes the names of a session. Where no file is there, none was kept.
    pub(super) fn forget_names(&self, id: &str) -> Result<(), StateError> {
        remove(&self.names(id))
    }

    /// Removes the names of all other sessions than these: a file may outlive its session where the process was killed in between,
    /// or where sessions were begun anew, and a later session of the same id must not inherit it.
    pub(super) fn keep_names_of(&self, ids: &BTreeSet<&str>) -> Result<(), StateError> {
        let fail = |error| StateError::new(&self.names, error);
        for entry in std::fs::read_dir(&self.names).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let is_kept = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(SUFFIX))
                .is_some_and(|id| ids.contains(id));
            if !is_kept {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a session, all but its names; durable when it returns.
    pub(super) fn remove(&self, id: &str) -> Result<(), StateError> {
        let mut changes = self.file.change()?;
        changes.remove(SESSIONS, id)?;
        changes.remove(SPENT, id)?;
        changes.commit()
    }
}

impl Session {
    /// Where the names that it has synthetic addresses for outlive the process.
    pub fn names_file(&self) -> PathBuf {
        self.keeper.names(&self.id)
    }

    /// Removes that file, as whoever may have made it after the session was closed must.
    pub fn forget_names(&self) -> Result<(), StateError> {
        self.keeper.forget_names(&self.id)
    }
}

fn remove(path: &Path) -> Result<(), StateError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::new(path, error)),
        _ => Ok(()),
    }
}
