//! Where values come from: the encrypted store, the gateway's own environment, files, and what is fetched (see [`live`]).
//!
//! A policy is written by people who may launch runs, so that what a binding may name is narrow: variables whose name
//! begins with `SALLYPORT_SECRET_`, and regular files below one folder (`secret-files` in the state directory), never
//! the gateway's other variables and files.
use super::live::{self, Given, Keeper, Terms, Unread, Until};
use super::{LONGEST_VALUE, SecretStore, Value};
use sallyport_policy::{Source as Named, Who};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// Beginning of the names of variables that a binding may name.
pub const VARIABLE_PREFIX: &str = "SALLYPORT_SECRET_";

/// Why a source gives no value. Its text names the source, never a value.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nothing there; the operator sets it.
    #[error("{0}")]
    Missing(String),
    /// The policy names what no policy may name.
    #[error("{0}")]
    NotAllowed(String),
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It is being fetched for the first time.
    #[error("it is being fetched")]
    Pending,
    /// It is fetched, and cannot be had at the moment.
    #[error("{sentence}")]
    Unavailable {
        /// Why.
        sentence: String,
        /// When it is asked for again.
        again: Duration,
    },
}

impl From<Unread> for SourceError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Pending => Self::Pending,
            Unread::Missing(sentence) => Self::Missing(sentence),
            Unread::NotAllowed(sentence) => Self::NotAllowed(sentence),
            Unread::Unavailable { sentence, again } => Self::Unavailable { sentence, again },
        }
    }
}

/// Gives values by name.
pub trait Source: Send + Sync {
    /// The value that a name stands for.
    fn read(&self, name: &str) -> Result<Value, SourceError>;
}

/// All sources of a gateway.
pub struct Sources {
    store: Arc<SecretStore>,
    variables: Variables,
    files: Files,
    keeper: Option<Arc<Keeper>>,
    terms: Terms,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The variables of the gateway's environment that may be used, read once at start. Clones share them.
#[derive(Clone)]
pub struct Variables(Arc<HashMap<String, Value>>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Variables {
    /// Takes those with the right prefix out of an environment.
    pub fn from_environment(all: impl Iterator<Item = (String, String)>) -> Self {
        let ours = all.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX));
        let ours = ours.map(|(name, value)| (name, Value::new(value.into_bytes())));
        Self(Arc::new(ours.collect()))
    }

    /// One of them.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).map(|value| Value::new(value.bytes().to_vec()))
    }
}

/// What tells one state of a file from another: when it was changed, its length, and which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(i64, i64, u64, u64);

/// A folder of files with one value each.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
}

impl Sources {
    /// The sources of a gateway: its store, its variables, and the folder for files.
    pub fn new(store: Arc<SecretStore>, variables: Variables, files: PathBuf) -> Self {
        Self {
            store,
            variables,
            files: Files { folder: files },
            keeper: None,
            terms: Terms::default(),
        }
    }

    /// With what must be fetched; its limits are those of all values.
    pub fn fetching(self, keeper: Arc<Keeper>) -> Self {
        Self {
            terms: keeper.terms().clone(),
            keeper: Some(keeper),
            ..self
        }
    }

    /// The value that a binding's `from` names in a session of this person, as it is now. Never waits.
    pub fn read(&self, (session, who): (&str, &Who), from: &Named) -> Result<Given, SourceError> {
        if self
            .keeper
            .as_ref()
            .is_some_and(|keeper| keeper.keeps_for_itself(from, &self.files.folder))
        {
            return Err(SourceError::NotAllowed(
                "it is what the gateway itself logs in with, as `sources.yaml` says, and no policy may name it".to_owned(),
            ));
        }
        let read = match from {
            Named::Store(name) => Source::read(&*self.store, name),
            Named::Env(name) => self.variables.read(name),
            Named::File(name) => self.files.read(name),
            fetched => {
                return match &self.keeper {
                    Some(keeper) => Ok(keeper.give(session, who, fetched)?),
                    None => Err(SourceError::NotAllowed(live::absent(fetched))),
                };
            }
        };
        Ok(Given {
            value: Arc::new(read?),
            until: Until::default(),
            trouble: None,
        })
    }

    /// Who fetches, where the gateway has sources that must be.
    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.keeper.as_ref()
    }

    /// Limits that values obey.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What a secret file looks like from outside; none where it cannot be looked at.
    pub fn file_stamp(&self, name: &str) -> Option<Stamp> {
        let about = std::fs::metadata(self.files.folder.join(name)).ok()?;
        Some(Stamp(about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
    }

    /// The store.
    pub fn store(&self) -> &Arc<SecretStore> {
        &self.store
    }
}

impl Source for SecretStore {
    fn read(&self, name: &str) -> Result<Value, SourceError> {
        self.value(name)
            .map_err(|error| SourceError::Unreadable(error.to_string()))?
            .ok_or_else(|| {
                SourceError::Missing(format!(
                    "no secret `{name}` is in the gateway's store; set it with `secret set {name}`"
                ))
            })
    }
}

impl Source for Variables {
    fn read(&self, name: &str) -> Result<Value, SourceError> {
        if !name.starts_with(VARIABLE_PREFIX) {
            return Err(SourceError::NotAllowed(format!(
                "variable `{name}` may not be used: its name must begin with `{VARIABLE_PREFIX}`"
            )));
        }
        self.value(name).ok_or_else(|| {
            SourceError::Missing(format!(
                "variable `{name}` is not set in the gateway's environment"
            ))
        })
    }
}

impl Source for Files {
    /// The file's content without one line end at its end.
    fn read(&self, name: &str) -> Result<Value, SourceError> {
        let relative = Path::new(name.strip_prefix("./").unwrap_or(name));
        let inside = relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let refuse = || {
            SourceError::NotAllowed(format!(
                "file `{name}` may not be used: secret files are named relative to `{}` and lie in it",
                self.folder.display()
            ))
        };
        if !inside || name.is_empty() {
            return Err(refuse());
        }
        let unreadable = |error: std::io::Error| {
            SourceError::Unreadable(format!("secret file `{name}` cannot be read: {error}"))
        };
        let folder = self.folder.canonicalize().map_err(unreadable)?;
        let path = folder.join(relative).canonicalize().map_err(unreadable)?;
        if !path.starts_with(&folder) || !path.is_file() {
            return Err(refuse());
        }
        let mut content = Zeroizing::new(Vec::with_capacity(LONGEST_VALUE + 2));
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(LONGEST_VALUE as u64 + 2)
            .read_to_end(&mut content)
            .map_err(unreadable)?;
        Ok(Value::new(without_line_end(&content).to_vec()))
    }
}

/// A text without one line end (`\n` or `\r\n`) at its end.
pub fn without_line_end(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &Path) -> Sources {
        let variables = [("SALLYPORT_SECRET_A", "from the env"), ("HOME", "/home/someone")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        std::fs::create_dir(folder.join("secret-files")).unwrap();
        Sources::new(
            Arc::new(SecretStore::open(folder).unwrap()),
            Variables::from_environment(variables.into_iter()),
            folder.join("secret-files"),
        )
    }

    #[test]
    fn each_source_gives_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        sources
            .store()
            .set("forge", Value::new(b"from the store".to_vec()))
            .unwrap();
        std::fs::write(folder.path().join("secret-files/token"), "from the file\r\n").unwrap();
        let read = |from: Named| {
            sources
                .read(("run-1", &Who::default()), &from)
                .unwrap()
                .value
                .bytes()
                .to_vec()
        };
        assert_eq!(read(Named::Store("forge".into())), b"from the store");
        assert_eq!(read(Named::Env("SALLYPORT_SECRET_A".into())), b"from the env");
        assert_eq!(read(Named::File("token".into())), b"from the file");
    }

    #[test]
    fn a_policy_cannot_name_other_variables_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        std::os::unix::fs::symlink("../secrets.key", folder.path().join("secret-files/link")).unwrap();
        for from in [
            Named::Env("HOME".into()),
            Named::File("../secrets.key".into()),
            Named::File("/etc/passwd".into()),
            Named::File("link".into()),
            Named::File(String::new()),
        ] {
            let error = sources.read(("run-1", &Who::default()), &from).unwrap_err();
            assert!(matches!(error, SourceError::NotAllowed(_)), "{from:?}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_way_to_set_it() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let error = sources
            .read(("run-1", &Who::default()), &Named::Store("forge".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("secret set forge"), "{error}");
        assert!(matches!(
            sources.read(
                ("run-1", &Who::default()),
                &Named::Env("SALLYPORT_SECRET_B".into())
            ),
            Err(SourceError::Missing(_))
        ));
        assert!(matches!(
            sources.read(("run-1", &Who::default()), &Named::File("no".into())),
            Err(SourceError::Unreadable(_))
        ));
    }
}
