//! Standing policies: the organisation's, teams' and repositories', which bind sessions besides what comes with each run.
//!
//! They lie as files in the folder `policies` and as numbered versions in `policies.redb`; the newest version of each is in
//! force. A changed file, a publication or a rollback becomes a version only after it was compiled for every session that
//! it binds (see [`Sessions::renew`]); what cannot be used is said by log, audit record, metric and view, and the version
//! before stays in force. Read `standing/reload.rs` for the files, `standing/edit.rs` for the calls.
use crate::audit::{AuditError, Sink};
use crate::control::types::{PolicyEdition, PolicyKey, PolicyVersion, StandingPolicies, StandingPolicy};
use crate::metrics::Metrics;
use crate::session::layers::{Layers, Standing as InForce};
use crate::session::renew::RenewError;
use crate::session::{SessionError, Sessions};
use crate::state_file::StateError;
use arc_swap::ArcSwap;
use sallyport_policy::Problem;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

mod disk;
mod edit;
mod force;
mod owner;
mod place;
mod reload;
mod store;
mod tale;

use disk::{Disk, GONE, Glance};
use store::Store;
use tale::Tale;

/// Why a call about standing policies failed.
#[derive(Debug, thiserror::Error)]
pub enum StandingError {
    /// The caller's: there is no such policy or version.
    #[error("{0}")]
    Unknown(String),
    /// The caller's: what was asked makes no sense.
    #[error("{0}")]
    Malformed(String),
    /// The policy's author's: what was in force stays so.
    #[error("the policy cannot be used{}; what was in force stays so", .0.first().map(|first| format!(": {first}")).unwrap_or_default())]
    Broken(Vec<Problem>),
    /// The operator's: the folder of policies cannot be read.
    #[error("the folder of policies cannot be used: {0}")]
    Folder(#[from] io::Error),
    /// The operator's: the state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The operator's: the audit log cannot be written; policies are not changed while that lasts.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Ours, or a session's.
    #[error("{0}")]
    Failed(String),
}

impl From<SessionError> for StandingError {
    fn from(error: SessionError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What is kept, before there are sessions.
pub struct Kept {
    store: Store,
    disk: Disk,
    entries: BTreeMap<PolicyKey, Entry>,
}

/// The standing policies of a gateway that serves.
pub struct Standing {
    store: Store,
    disk: Disk,
    sessions: Arc<Sessions>,
    sink: Sink,
    metrics: Metrics,
    /// One change at a time.
    inner: Mutex<Inner>,
    shown: ArcSwap<StandingPolicies>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<PolicyKey, Entry>,
    strays: Vec<String>,
    /// The folder's metadata when it was read last, and whether a later change would show in them.
    looked: Option<(Glance, bool)>,
    /// Of the sessions, when the folder was read last.
    generation: u64,
}

/// What is known of one policy.
struct Entry {
    /// The newest version, which is in force unless it withdraws the policy.
    newest: Option<PolicyEdition>,
    /// Digest of what lay on disk when that was put in force: no news.
    seen: String,
    /// Why what lies on disk is not in force, and its digest.
    broken: Vec<Problem>,
    broken_digest: String,
    differs: bool,
    /// Set where the gateway started with a file that cannot be used, and no version: nothing passes for whom it binds.
    unusable: bool,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            newest: None,
            seen: GONE.to_owned(),
            broken: Vec::new(),
            broken_digest: String::new(),
            differs: false,
            unusable: false,
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").finish_non_exhaustive()
    }
}

impl Entry {
    fn in_force(&self) -> Option<&PolicyEdition> {
        self.newest.as_ref().filter(|edition| !edition.version.withdrawn)
    }

    fn next_number(&self) -> u64 {
        self.newest
            .as_ref()
            .map_or(1, |edition| edition.version.number.saturating_add(1))
    }
}

impl Kept {
    /// Opens what is kept in a state folder.
    pub fn open(state: &Path) -> Result<Self, StandingError> {
        let store = Store::open(state)?;
        let mut seen = store.seen()?;
        let entries = store.newest()?.into_iter().map(|(key, edition)| {
            let entry = Entry {
                newest: Some(edition),
                seen: seen.remove(&key.to_string()).unwrap_or_else(|| GONE.to_owned()),
                ..Entry::default()
            };
            (key, entry)
        });
        Ok(Self {
            entries: entries.collect(),
            disk: Disk::open(state.join("policies"))?,
            store,
        })
    }

    /// What was in force last; sessions are restored under it.
    pub fn layers(&self) -> Layers {
        layers(&self.entries)
    }
}

impl Standing {
    /// Takes the files that changed since, like any reload; then, where a file cannot be used and no version of it is kept,
    /// nothing passes for the sessions that it would bind.
    pub async fn start(
        kept: Kept,
        sessions: Arc<Sessions>,
        sink: Sink,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StandingError> {
        let standing = Arc::new(Self {
            store: kept.store,
            disk: kept.disk,
            sessions,
            sink,
            metrics,
            inner: Mutex::new(Inner {
                entries: kept.entries,
                ..Inner::default()
            }),
            shown: ArcSwap::from_pointee(StandingPolicies {
                policies: Vec::new(),
                strays: Vec::new(),
                closed: Vec::new(),
            }),
        });
        standing.begin().await?;
        Ok(standing)
    }

    /// As the supervisor sees them.
    pub fn view(&self) -> StandingPolicies {
        let closed = self.sessions.list().into_iter();
        let closed = closed.filter(|session| session.is_closed_by_policy());
        StandingPolicies {
            closed: closed.map(|session| session.id().to_owned()).collect(),
            ..StandingPolicies::clone(&self.shown.load())
        }
    }

    /// All versions of a policy, newest first.
    pub async fn versions(self: &Arc<Self>, key: PolicyKey) -> Result<Vec<PolicyVersion>, StandingError> {
        let own = self.clone();
        let versions = off_thread(move || Ok(own.store.versions(&key)?)).await?;
        if versions.is_empty() {
            return Err(StandingError::Unknown("there is no such policy".to_owned()));
        }
        Ok(versions)
    }

    /// One version, with its texts.
    pub async fn version(
        self: &Arc<Self>,
        key: PolicyKey,
        number: u64,
    ) -> Result<PolicyEdition, StandingError> {
        let own = self.clone();
        off_thread(move || own.kept_version(&key, number)).await
    }

    fn kept_version(&self, key: &PolicyKey, number: u64) -> Result<PolicyEdition, StandingError> {
        let unknown = || StandingError::Unknown(format!("the policy `{key}` has no version {number}"));
        self.store.version(key, number)?.ok_or_else(unknown)
    }

    /// Does a change beside the serving, then writes down what there is to tell of it: policies are not changed while
    /// nothing can be written.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &mut Inner, &mut Tale) -> Result<T, StandingError> + Send + 'static,
    ) -> Result<T, StandingError> {
        if !self.sink.healthy() {
            return Err(AuditError("earlier records could not be written yet".to_owned()).into());
        }
        let own = self.clone();
        let (result, tale) = off_thread(move || {
            let mut tale = Tale::default();
            let mut inner = own.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&own, &mut inner, &mut tale);
            own.shown.store(Arc::new(shown(&inner)));
            Ok((result, tale))
        })
        .await?;
        tale.tell(&self.sink, &self.sessions, &self.metrics).await?;
        result
    }
}

fn layers(entries: &BTreeMap<PolicyKey, Entry>) -> Layers {
    let mut layers = Layers::default();
    for (key, entry) in entries {
        if let Some(edition) = entry.in_force() {
            layers.put(key.clone(), InForce::Texts(edition.texts.as_slice().into()));
        } else if entry.unusable {
            layers.put(key.clone(), InForce::Unusable(entry.broken.as_slice().into()));
        }
    }
    layers
}

fn shown(inner: &Inner) -> StandingPolicies {
    let policies = inner.entries.iter().filter_map(|(key, entry)| {
        let version = entry.in_force().map(|edition| edition.version.clone());
        let told = version.is_some() || !entry.broken.is_empty() || entry.newest.is_some();
        told.then(|| StandingPolicy {
            key: key.clone(),
            version,
            broken: entry.broken.clone(),
            differs: entry.differs,
        })
    });
    StandingPolicies {
        policies: policies.collect(),
        strays: inner.strays.clone(),
        closed: Vec::new(),
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StandingError> + Send + 'static,
) -> Result<T, StandingError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StandingError::Failed(error.to_string()))?
}

#[cfg(test)]
mod tests;
