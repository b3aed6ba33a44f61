//! The gateway's own secrets, with which it logs in to a service: named in `sources.yaml`, and by no policy.
use crate::secret::source::{Variables, without_line_end};
use crate::secret::{LONGEST_VALUE, SecretStore, Value};
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Where such a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Named {
    /// In the encrypted store, by name.
    Store(String),
    /// In a variable of the gateway's environment whose name begins with `SALLYPORT_SECRET_`.
    Env(String),
    /// In a file, which is read anew for each log-in; relative to the folder of `sources.yaml`.
    File(PathBuf),
}

/// Reads them.
#[derive(Debug)]
pub struct Own {
    store: Arc<SecretStore>,
    variables: Variables,
    folder: PathBuf,
}

impl Own {
    /// From this store, these variables, and files relative to a folder.
    pub fn new(store: Arc<SecretStore>, variables: Variables, folder: PathBuf) -> Self {
        Self {
            store,
            variables,
            folder,
        }
    }

    /// A file's place.
    pub fn path(&self, file: &Path) -> PathBuf {
        self.folder.join(file)
    }

    /// A PEM file, where one is named.
    pub(super) fn pem(&self, file: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
        let Some(file) = file else { return Ok(None) };
        let path = self.path(file);
        let read = std::fs::read(&path);
        read.map(Some)
            .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))
    }

    /// Puts another value in a secret's place, which only the store allows.
    pub(super) async fn replace(&self, named: &Named, value: Value) -> Result<(), String> {
        let Named::Store(name) = named else {
            return Err("it is not named by `store`, and only what lies there can be replaced".to_owned());
        };
        let (store, name) = (self.store.clone(), name.clone());
        let set = tokio::task::spawn_blocking(move || store.set(&name, value)).await;
        match set {
            Ok(set) => set.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The value of today. Blocks for some milliseconds.
    pub fn read(&self, named: &Named) -> Result<Value, String> {
        match named {
            Named::Store(name) => match self.store.value(name) {
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err(format!(
                    "no secret `{name}` is in the gateway's store; set it with `secret set {name}`"
                )),
                Err(error) => Err(error.to_string()),
            },
            Named::Env(name) => self
                .variables
                .value(name)
                .ok_or_else(|| format!("variable `{name}` is not set in the gateway's environment")),
            Named::File(path) => {
                let path = self.path(path);
                let fail = |error: std::io::Error| format!("`{}` cannot be read: {error}", path.display());
                let mut content = Zeroizing::new(Vec::with_capacity(LONGEST_VALUE + 2));
                let file = std::fs::File::open(&path).map_err(fail)?;
                file.take(LONGEST_VALUE as u64 + 2)
                    .read_to_end(&mut content)
                    .map_err(fail)?;
                Ok(Value::new(without_line_end(&content).to_vec()))
            }
        }
    }
}
