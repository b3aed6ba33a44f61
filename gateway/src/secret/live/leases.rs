//! Leases that are held, on disk: ids, never values. What a crash leaves behind is given back at the next start.
use crate::state_file::{StateError, StateFile, Table};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

const LEASES: Table = Table::new("leases");

/// Whose a lease is; kept under its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// Kind of its source.
    pub(super) kind: String,
    /// Session that it was made for.
    pub(super) session: String,
}

/// The file of leases.
#[derive(Clone)]
pub(super) struct Leases(Arc<StateFile>);

impl Leases {
    /// Opens the file, or makes it.
    pub(super) fn open(folder: &Path) -> Result<Self, StateError> {
        let mend = "leases that were in it are then given back by nobody, and end by themselves";
        let file = StateFile::open(folder, "leases.redb", &[LEASES], mend)?;
        Ok(Self(Arc::new(file)))
    }

    /// All there are, by id.
    pub(super) fn all(&self) -> Result<Vec<(String, Owner)>, StateError> {
        self.0.range(LEASES, "", None)
    }

    /// Writes one down; durable when it returns.
    pub(super) async fn add(&self, id: &str, owner: Owner) -> Result<(), String> {
        let id = id.to_owned();
        self.change(move |file| {
            let mut changes = file.change()?;
            changes.put(LEASES, &id, &owner)?;
            changes.commit()
        })
        .await
    }

    /// Forgets one.
    pub(super) async fn remove(&self, id: &str) -> Result<(), String> {
        let id = id.to_owned();
        self.change(move |file| {
            let mut changes = file.change()?;
            changes.remove(LEASES, &id)?;
            changes.commit()
        })
        .await
    }

    async fn change(
        &self,
        work: impl FnOnce(&StateFile) -> Result<(), StateError> + Send + 'static,
    ) -> Result<(), String> {
        let file = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&file)).await;
        done.map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }
}
