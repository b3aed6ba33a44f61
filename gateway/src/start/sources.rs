//! The file that names the services secrets are fetched from: read at start, and anew on a reload.
use super::fault::StartError;
use crate::limits::Limits;
use crate::secret::SecretStore;
use crate::secret::live::{Keeper, Own, Providers, Settings, SettingsError, Terms};
use crate::secret::source::Variables;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file, if it was named; otherwise `sources.yaml` in the state folder, which may be absent.
#[derive(Debug, Clone, Default)]
pub struct SourcesFile(pub Option<PathBuf>);

/// The file with what is made of it.
pub(super) struct FetchedFrom {
    path: PathBuf,
    /// Whether it must be there.
    named: bool,
    own: Arc<Own>,
    terms: Terms,
    /// What it said last.
    text: Mutex<String>,
}

impl FetchedFrom {
    /// Reads the file, and opens the keeper that fetches from what it names; inside a tokio runtime.
    pub(super) fn open(
        state: &Path,
        file: &SourcesFile,
        store: Arc<SecretStore>,
        variables: Variables,
        limits: &Limits,
    ) -> Result<(Self, Arc<Keeper>), StartError> {
        let path = file.0.clone().unwrap_or_else(|| state.join("sources.yaml"));
        let folder = path.parent().unwrap_or(state).to_owned();
        let from = Self {
            named: file.0.is_some(),
            own: Arc::new(Own::new(store, variables, folder)),
            terms: limits.into(),
            text: Mutex::default(),
            path,
        };
        let text = from.read()?;
        let keeper = Keeper::open(state, from.providers(&text)?, limits.into())?;
        *from.text() = text;
        Ok((from, keeper))
    }

    /// Reads the file anew; where it says something else, all is fetched from what it names now. Whether it does. Blocks.
    pub(super) fn reload(&self, keeper: &Keeper) -> Result<bool, SettingsError> {
        let text = self.read()?;
        if *self.text() == text {
            return Ok(false);
        }
        keeper.replace(self.providers(&text)?);
        *self.text() = text;
        Ok(true)
    }

    fn read(&self) -> Result<String, SettingsError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.named => Ok(String::new()),
            Err(error) => Err(SettingsError {
                path: self.path.clone(),
                what: format!("it cannot be read: {error}"),
            }),
        }
    }

    fn providers(&self, text: &str) -> Result<Providers, SettingsError> {
        Settings::parse(&self.path, text)?.providers(&self.path, &self.own, &self.terms)
    }

    fn text(&self) -> std::sync::MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
