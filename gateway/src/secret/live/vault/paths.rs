//! Paths in Vault: which of them policies may name, and how each is read.
use sallyport_policy::Who;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Parameters of a request, with the run's facts put in for `${FACT}`.
pub(super) fn filled(parameters: &BTreeMap<String, String>, who: &Who) -> Json {
    let fill = |text: &String| {
        let mut filled = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, behind)) = after.split_once('}') else {
                break;
            };
            filled.push_str(before);
            filled.push_str(who.fact(name));
            rest = behind;
        }
        filled + rest
    };
    let parameters = parameters
        .iter()
        .map(|(name, text)| (name.replace('-', "_"), Json::from(fill(text))));
    Json::Object(parameters.collect::<Map<_, _>>())
}

/// The engine that a path belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mount {
    /// Its path, without a slash at the end.
    pub(super) path: String,
    /// Whether it is the KV engine that keeps versions.
    pub(super) versioned: bool,
}

impl Mount {
    /// What is asked for to read a path (KV version 2 has the values below `data`).
    pub(super) fn read_path(&self, path: &str) -> String {
        match path.strip_prefix(&self.path).filter(|_| self.versioned) {
            Some(rest) => format!("{}/data{rest}", self.path),
            None => path.to_owned(),
        }
    }
}

/// Engines that are known, by the path that was asked for.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<BTreeMap<String, Mount>>);

impl Mounts {
    pub(super) fn known(&self, path: &str) -> Option<Mount> {
        self.all().get(path).cloned()
    }

    /// Remembers one; where nothing is known of it, nothing is remembered.
    pub(super) fn note(&self, path: &str, mount: Option<Mount>) -> Mount {
        if let Some(mount) = &mount {
            self.all().insert(path.to_owned(), mount.clone());
        }
        mount.unwrap_or_default()
    }

    pub(super) fn forget(&self, path: &str) {
        self.all().remove(path);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Mount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
