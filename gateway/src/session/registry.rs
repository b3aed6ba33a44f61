//! All sessions of a gateway: opened, changed and closed by the supervisor, found by whoever accepts traffic.
use super::bind::{Ground, Placeholders, bind};
use super::check::{check_id, checked, random_token, shown};
use super::keep::{Keeper, Kept, StateError};
use super::layers::{Layers, NoPolicy};
use super::quota::Quotas;
use super::{Live, Session};
use crate::audit::{AuditError, Sink};
use crate::control::types::{SessionSpec, SessionView};
use crate::secret::Sources;
use arc_swap::ArcSwap;
use sallyport_policy::{Overlay, Policy, Problem};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;

/// All sessions of this gateway, kept in redb.
pub struct Sessions {
    all: RwLock<HashMap<String, Arc<Session>>>,
    keeper: Arc<Keeper>,
    sources: Arc<Sources>,
    sink: Sink,
    layers: ArcSwap<Layers>,
    /// One change at a time: each reads, writes to disk, then shows.
    changing: Mutex<()>,
    /// Counts sessions that came, changed or went.
    generation: AtomicU64,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Why a change of a session was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The caller's: there is no such session.
    #[error("there is no session `{0}`")]
    Unknown(String),
    /// The caller's: what was given makes no sense.
    #[error("{0}")]
    Malformed(String),
    /// The policy's author's: the one before stays in force.
    #[error("the policy cannot be used{}; {}", .problems.first().map(|first| format!(": {first}")).unwrap_or_default(),
        if *.kept { "the one before it stays in force" } else { "the session was not opened" })]
    Policy {
        /// All that is wrong with it.
        problems: Vec<Problem>,
        /// Whether an earlier policy stays in force.
        kept: bool,
    },
    /// The operator's: the state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The operator's: the audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Ours: the system gave no random bytes, or the secrets are too large.
    #[error("{0}")]
    Failed(String),
}

impl Sessions {
    /// Opens the state without any standing policy; see [`Self::open_under`].
    pub fn open(folder: &Path, sources: Arc<Sources>, sink: Sink) -> Result<Arc<Self>, StateError> {
        Self::open_under(Layers::default(), folder, sources, sink)
    }

    /// Opens the state and restores every session, under these standing policies. Where its policy no longer compiles,
    /// nothing passes for a session, with an error in the log, until the supervisor puts a good one or the standing
    /// policies are mended.
    pub fn open_under(
        layers: Layers,
        folder: &Path,
        sources: Arc<Sources>,
        sink: Sink,
    ) -> Result<Arc<Self>, StateError> {
        let keeper = Arc::new(Keeper::open(folder)?);
        let kept = keeper.all()?;
        keeper.keep_names_of(&kept.iter().map(|(id, _)| id.as_str()).collect())?;
        let sessions = Arc::new(Self {
            all: RwLock::default(),
            keeper,
            sources,
            sink: sink.clone(),
            layers: ArcSwap::from_pointee(layers),
            changing: Mutex::new(()),
            generation: AtomicU64::new(0),
        });
        sessions.follow_changes();
        let restoring = sessions.changing();
        for (id, kept) in kept {
            match sessions.restore(&id, kept) {
                Ok(()) => tracing::info!(session = id, "session restored"),
                Err(error) => {
                    tracing::error!(session = id, %error, "session not restored: nothing passes for it")
                }
            }
        }
        drop(restoring);
        let scrubbing = Arc::downgrade(&sessions);
        sink.scrub_with(move |record| {
            let session = scrubbing
                .upgrade()
                .and_then(|sessions| sessions.by_id(&record.session));
            if let Some(session) = session {
                session.secrets().scrub(record);
            }
        });
        Ok(sessions)
    }

    /// By id.
    pub fn by_id(&self, id: &str) -> Option<Arc<Session>> {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .cloned()
    }

    /// By the password of the explicit proxy; the user name must be the session's id. Constant time in the password.
    pub fn by_proxy_password(&self, user: &str, password: &str) -> Option<Arc<Session>> {
        let session = self.by_id(user)?;
        let fits = {
            let kept = session.kept();
            let token = kept.proxy_token.as_bytes();
            aws_lc_rs::constant_time::verify_slices_are_equal(token, password.as_bytes()).is_ok()
        };
        fits.then_some(session)
    }

    /// All, by id.
    pub fn list(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self
            .all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// As the supervisor sees it.
    pub fn view(&self, id: &str, ca_pem: &str) -> Result<SessionView, SessionError> {
        self.by_id(id)
            .map(|session| session.view(ca_pem))
            .ok_or_else(|| SessionError::Unknown(shown(id)))
    }

    /// Opens a session, or replaces the policy and facts of one; placeholders, proxy password and grants stay.
    /// On disk when it returns; blocks for some milliseconds.
    pub fn put(&self, id: &str, spec: SessionSpec) -> Result<(), SessionError> {
        check_id(id)?;
        let spec = checked(spec)?;
        let _changing = self.changing();
        let there = self.by_id(id);
        let policy = self.policy(&spec).map_err(|problems| SessionError::Policy {
            problems,
            kept: there.is_some(),
        })?;
        let before = match &there {
            Some(session) => Some(session.kept().clone()),
            None => self.keeper.load(id)?,
        };
        let kept = match before {
            Some(kept) => Kept { spec, ..kept },
            None => Kept {
                spec,
                proxy_token: random_token()?,
                placeholders: Placeholders::new(),
                grants: Vec::new(),
                certificates: Vec::new(),
                authority: None,
            },
        };
        self.install(id, there, kept, Ok(policy))?;
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Records whose session it is and under which policy, unless the log knows it already. Call it after each change,
    /// before the change is answered: what the session does is read with these facts later.
    pub async fn record_facts(&self, id: &str) -> Result<(), SessionError> {
        let session = self.by_id(id).ok_or_else(|| SessionError::Unknown(shown(id)))?;
        Ok(session.record_facts(&self.sink).await?)
    }

    /// Ends a session: forgotten on disk, then everything that hangs on it is closed. Its names go last, since a door may be opening
    /// them; where that fails, a further call tries again.
    pub fn delete(&self, id: &str) -> Result<(), SessionError> {
        let _changing = self.changing();
        self.keeper.remove(id)?;
        let removed = self
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        if let Some(session) = removed {
            session.closed.cancel();
        }
        if let Some(keeper) = self.sources.keeper() {
            keeper.end(id);
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(self.keeper.forget_names(id)?)
    }

    /// Reads all values anew, as after a secret was set or removed.
    pub fn refresh_secrets(&self) -> Result<(), SessionError> {
        let _changing = self.changing();
        for session in self.list() {
            let kept = session.kept().clone();
            let policy = self.policy(&kept.spec);
            self.install(&session.id.clone(), Some(session), kept, policy)?;
        }
        Ok(())
    }

    /// A number that is another one whenever a session came, changed or went.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn sink(&self) -> &Sink {
        &self.sink
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(super) fn put_layers(&self, layers: Layers) {
        self.layers.store(Arc::new(layers));
    }

    pub(super) fn layers(&self) -> Arc<Layers> {
        self.layers.load_full()
    }

    fn policy(&self, spec: &SessionSpec) -> Result<Policy, Vec<Problem>> {
        self.layers()
            .compile(&spec.who, &spec.policies)
            .map_err(NoPolicy::into_problems)
    }

    fn restore(&self, id: &str, kept: Kept) -> Result<(), SessionError> {
        let policy = self.policy(&kept.spec);
        if let Err(problems) = &policy {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            let problems = problems.join("\n");
            tracing::error!(
                session = id,
                problems,
                "its policy cannot be used: nothing passes for it"
            );
        }
        self.install(id, None, kept, policy)
    }

    /// Binds, writes, shows; in this order.
    fn install(
        &self,
        id: &str,
        there: Option<Arc<Session>>,
        kept: Kept,
        policy: Result<Policy, Vec<Problem>>,
    ) -> Result<(), SessionError> {
        let before = there.as_ref().map(|session| session.secrets());
        let credentials = policy.as_ref().map(Policy::credentials).unwrap_or_default();
        let ground = Ground::of(id, &kept.spec.who, &self.sources);
        ground.want(credentials);
        let (bound, placeholders) = bind(credentials, &ground, kept.placeholders.clone(), before.as_deref())
            .map_err(SessionError::Failed)?;
        // Grants may be used up meanwhile, and an authority come: the lock is held from reading them to showing the new state.
        let mut guard = there.as_ref().map(|session| session.kept());
        let (grants, authority) = match &guard {
            Some(now) => (now.grants.clone(), now.authority.clone()),
            None => (kept.grants, kept.authority),
        };
        let kept = Kept {
            placeholders,
            grants,
            authority,
            ..kept
        };
        self.keeper.save(id, &kept)?;
        let live = Live::new(&kept.spec, policy, bound);
        if let (Some(session), Some(guard)) = (&there, &mut guard) {
            session.live.store(Arc::new(live));
            **guard = kept;
            return Ok(());
        }
        let spent = self.keeper.spent(id)?;
        let session = Session {
            id: id.to_owned(),
            quotas: Arc::new(Quotas::new(id, self.keeper.clone(), spent)),
            live: ArcSwap::from_pointee(live),
            overlay: ArcSwap::from_pointee(Overlay {
                grants: kept.grants.clone(),
            }),
            authority: kept.authority.clone().map(OnceLock::from).unwrap_or_default(),
            kept: Mutex::new(kept),
            keeper: self.keeper.clone(),
            recorded: Mutex::new(None),
            closed: CancellationToken::new(),
        };
        self.all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned(), Arc::new(session));
        Ok(())
    }

    pub(super) fn changing(&self) -> std::sync::MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
