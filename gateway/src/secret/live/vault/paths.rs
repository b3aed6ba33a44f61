//! Paths in Vault: which of them policies may name, and how each is read.
use super::settings::is_path;
use sallyport_policy::Who;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// One entry of `allow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    segments: Vec<String>,
    /// Whether all below is meant.
    below: bool,
}

impl Pattern {
    /// Reads `kv/agents/model`, `kv/agents/*`, `kv/teams/${team}/*`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (path, below) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        let fits = path.split('/').all(|segment| {
            fact(segment).is_some_and(|name| Who::default().set(name, String::new())) || is_path(segment)
        });
        match fits {
            true => Ok(Self {
                segments: path.split('/').map(str::to_owned).collect(),
                below,
            }),
            false => Err(format!(
                "`allow`: `{}` is no path; write for example `kv/agents/model`, `kv/agents/*` for all below, or `kv/teams/${{team}}/*` \
                 for what is the team's of each run",
                text.escape_debug()
            )),
        }
    }

    /// Whether it covers a path, for a run of this person.
    pub(super) fn admits(&self, path: &str, who: &Who) -> bool {
        let mut parts = path.split('/');
        let begins = self.segments.iter().all(|segment| {
            let Some(part) = parts.next() else { return false };
            match fact(segment) {
                // A fact that is not known covers nothing.
                Some(name) => !part.is_empty() && part == who.fact(name),
                None => part == segment,
            }
        });
        begins && is_path(path) && (parts.next().is_some() == self.below)
    }
}

/// `${team}`: the fact's name.
fn fact(segment: &str) -> Option<&str> {
    segment.strip_prefix("${")?.strip_suffix('}')
}

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
